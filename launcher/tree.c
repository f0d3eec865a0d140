/* A process and its descendants, as /proc shows them. */
#define _GNU_SOURCE
#include "launcher.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TEXT_BYTES = 8192, /* of a buffer for files of /proc, which grows by as much */
    LEAST_FREE = 4096, /* in it before each read */
    POLL_NS = 20 * 1000 * 1000,
    REAP_S = 5,        /* for a killed process to end; one that waits for a lost disk may never do so */
};

struct pids {
    pid_t *items;
    size_t count, capacity;
};

/* The index in an NSpid line of the process id that kill and getpid use. 0 means that /proc shows the
 * ids of our own pid namespace. Otherwise it shows those of a parent namespace (`unshare --pid`
 * alone), and each id has to be translated. */
static int level;

/* For kernels that do not list the children of a thread: pairs of each process and its parent. */
static struct {
    bool needed;
    struct pids pairs;
} census;

static void append_pid(struct pids *pids, pid_t pid)
{
    if (pids->count == pids->capacity) {
        size_t capacity = pids->capacity ? 2 * pids->capacity : 64;
        pid_t *items = realloc(pids->items, capacity * sizeof *items);
        if (!items)
            return; /* a sample is then too low, and a kill is repeated */
        pids->items = items;
        pids->capacity = capacity;
    }
    pids->items[pids->count++] = pid;
}

/* Returns a file of /proc as a string, valid until the next call; empty if there is no such file. The
 * kernel returns long ones in pieces: lists of children, and the status of a user in many groups. */
static const char *read_proc(const char *path)
{
    static char *text;
    static size_t capacity;
    size_t length = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    while (file >= 0) {
        if (capacity - length < LEAST_FREE) {
            char *larger = realloc(text, capacity + TEXT_BYTES);
            if (!larger)
                break;
            text = larger;
            capacity += TEXT_BYTES;
        }
        ssize_t count = read(file, text + length, capacity - length - 1);
        if (count <= 0)
            break;
        length += (size_t)count;
    }
    if (file >= 0)
        close(file);
    if (!text)
        return "";
    text[length] = '\0';
    return text;
}

static const char *read_status(pid_t shown)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", shown);
    return read_proc(path);
}

/* Returns an id of the NSpid line; zero if the line has fewer. */
static pid_t namespace_number(const char *status, int at)
{
    const char *next = strstr(status, "\nNSpid:");
    long number = 0;
    if (next)
        next += strlen("\nNSpid:");
    for (int i = 0; i <= at; i++) {
        if (!next || *next != '\t')
            return 0;
        char *end;
        number = strtol(next + 1, &end, 10);
        next = end;
    }
    return (pid_t)number;
}

/* Returns the id by which a process can be signalled; zero if it is not in our namespace. */
static pid_t own_number(pid_t shown, const char *status)
{
    return level == 0 ? shown : namespace_number(status, level);
}

static uint64_t field_of(const char *status, const char *name)
{
    const char *found = strstr(status, name);
    return found ? strtoull(found + strlen(name), NULL, 10) : 0;
}

/* Returns the parent's id in /proc; zero if it is unknown. */
static pid_t parent_of(pid_t shown)
{
    char path[64];
    pid_t parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", shown);
    const char *name_end = strrchr(read_proc(path), ')');
    return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 ? parent : 0;
}

static void add_to_census(pid_t pid)
{
    size_t before = census.pairs.count;
    append_pid(&census.pairs, pid);
    append_pid(&census.pairs, parent_of(pid));
    if (census.pairs.count != before + 2)
        census.pairs.count = before;
}

static void take_census(void)
{
    DIR *processes = opendir("/proc");
    census.pairs.count = 0;
    for (struct dirent *entry; processes && (entry = readdir(processes));)
        if (isdigit((unsigned char)entry->d_name[0]))
            add_to_census((pid_t)atoi(entry->d_name));
    if (processes)
        closedir(processes);
}

static void append_children_by_census(struct pids *found, pid_t pid)
{
    for (size_t i = 0; i < census.pairs.count; i += 2)
        if (census.pairs.items[i + 1] == pid)
            append_pid(found, census.pairs.items[i]);
}

/* Takes complete numbers only: one that is cut off would name another process. */
static void append_children_of_thread(struct pids *found, pid_t pid, pid_t thread)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, thread);
    const char *list = read_proc(path);
    for (char *end; isdigit((unsigned char)*list); list = end + 1) {
        long child = strtol(list, &end, 10);
        if (*end != ' ')
            return;
        append_pid(found, (pid_t)child);
    }
}

static void append_children_of_threads(struct pids *found, pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", pid);
    DIR *threads = opendir(path);
    for (struct dirent *entry; threads && (entry = readdir(threads));)
        if (isdigit((unsigned char)entry->d_name[0]))
            append_children_of_thread(found, pid, (pid_t)atoi(entry->d_name));
    if (threads)
        closedir(threads);
}

static void append_children(struct pids *found, pid_t pid, bool threaded)
{
    if (census.needed)
        append_children_by_census(found, pid);
    else if (threaded)
        append_children_of_threads(found, pid);
    else
        append_children_of_thread(found, pid, pid);
}

static bool kernel_lists_children(void)
{
    return access("/proc/thread-self/children", R_OK) == 0;
}

/* Reads what cannot change during the life of this process. */
static void look_at_proc(void)
{
    static bool known;
    if (known)
        return;
    known = true;
    const char *status = read_proc("/proc/self/status");
    while (namespace_number(status, level + 1) > 0)
        level++;
}

static pid_t shown_self(void)
{
    char target[32] = "";
    return readlink("/proc/self", target, sizeof target - 1) > 0 ? (pid_t)atoi(target) : 0;
}

/* Returns the id in /proc of this process or of one of its children. */
static pid_t shown_number(pid_t pid)
{
    static struct pids ours;
    if (level == 0)
        return pid;
    if (pid == getpid())
        return shown_self();
    ours.count = 0;
    append_children(&ours, shown_self(), false);
    for (size_t i = 0; i < ours.count; i++)
        if (own_number(ours.items[i], read_status(ours.items[i])) == pid)
            return ours.items[i];
    return 0;
}

pid_t tree_grandparent(void)
{
    look_at_proc();
    pid_t found = parent_of(level == 0 ? getppid() : parent_of(shown_self()));
    return own_number(found, level > 0 ? read_status(found) : "");
}

/* A step below another one has a launcher of its own, which measures and pauses it. */
static bool is_launcher(const char *status)
{
    static const char NAME[] = "Name:\tstoker-launcher\n";
    return strncmp(status, NAME, sizeof NAME - 1) == 0;
}

/* Finds the descendants, without the steps among them unless `all`, and returns their memory. `found`
 * receives ids of /proc, `own` the ids for signals. */
static uint64_t walk(pid_t root, struct pids *found, struct pids *own, bool all)
{
    static bool known; /* most commands end before their first sample */
    uint64_t kib = 0;
    look_at_proc();
    if (!known)
        census.needed = !kernel_lists_children();
    known = true;
    if (census.needed)
        take_census();
    found->count = own->count = 0;
    append_children(found, shown_number(root), false);
    for (size_t i = 0; i < found->count; i++) {
        const char *status = read_status(found->items[i]);
        if (!all && is_launcher(status)) {
            found->items[i] = 0;
            continue;
        }
        kib += field_of(status, "\nRssAnon:") + field_of(status, "\nRssShmem:");
        bool threaded = field_of(status, "\nThreads:") > 1;
        append_pid(own, own_number(found->items[i], status));
        append_children(found, found->items[i], threaded);
    }
    return kib << 10;
}

/* Adds the CPU time of a process and of the children that it has waited for; notes whether it works or
 * waits for a disk, as one does that gets no CPU on a busy machine. */
static void add_cpu(struct tree_use *use, pid_t shown)
{
    char path[64], state;
    unsigned long user, system;
    long children_user, children_system;
    snprintf(path, sizeof path, "/proc/%d/stat", shown);
    const char *name_end = strrchr(read_proc(path), ')');
    if (!name_end || sscanf(name_end, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &state,
                            &user, &system, &children_user, &children_system) != 5)
        return;
    use->ticks += user + system + (unsigned long)children_user + (unsigned long)children_system;
    use->works |= state == 'R' || state == 'D';
}

struct tree_use tree_use(pid_t root, bool cpu)
{
    static struct pids found, own;
    struct tree_use use = {.memory = walk(root, &found, &own, false)};
    if (!cpu)
        return use;
    add_cpu(&use, shown_number(root)); /* which has waited for those whose parents have ended */
    for (size_t i = 0; i < found.count; i++)
        if (found.items[i])
            add_cpu(&use, found.items[i]);
    return use;
}

uint64_t tree_cpu_us(const struct rusage *usage)
{
    return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

/* Finds all processes before it signals the first: a resumed one might exit and hide its children. */
static void signal_tree(pid_t root, int number, bool all)
{
    static struct pids found, own;
    walk(root, &found, &own, all);
    for (size_t i = 0; i < own.count; i++)
        if (own.items[i] > 1) /* 0 and -1 would signal whole groups of processes */
            kill(own.items[i], number);
}

void tree_pause(pid_t root)
{
    signal_tree(root, SIGSTOP, false);
}

void tree_resume(pid_t root)
{
    signal_tree(root, SIGCONT, false);
}

bool tree_maps(pid_t root, const char *part, char *path)
{
    static struct pids found, own;
    walk(root, &found, &own, true);
    for (size_t i = 0; i < found.count; i++) {
        char maps[64];
        snprintf(maps, sizeof maps, "/proc/%d/maps", found.items[i]);
        const char *line = read_proc(maps), *end = strstr(line, part);
        if (!end)
            continue;
        for (const char *next; (next = strchr(line, '\n')) && next < end;)
            line = next + 1;
        line = strchr(line, '/'); /* nothing before the path has one */
        size_t length = strcspn(line, "\n");
        if (length >= PATH_MAX)
            continue;
        memcpy(path, line, length);
        path[length] = '\0';
        return true;
    }
    return false;
}

uint64_t tree_kill(void)
{
    uint64_t cpu_us = 0;
    sigset_t death;
    sigemptyset(&death);
    sigaddset(&death, SIGCHLD); /* blocked in the launcher and in the keeper */
    int64_t until_us = now_us() + REAP_S * 1000000;
    while (now_us() < until_us) {
        struct rusage usage;
        pid_t pid;
        signal_tree(getpid(), SIGKILL, true);
        /* A process that was forked during the walk becomes our child when its parent dies, and wait4
         * returns that death. So deaths are followed by another walk. */
        while ((pid = wait4(-1, NULL, WNOHANG, &usage)) > 0) {
            cpu_us += tree_cpu_us(&usage);
            until_us = now_us() + REAP_S * 1000000;
        }
        if (pid < 0 && errno == ECHILD)
            break;
        sigtimedwait(&death, NULL, &(struct timespec){.tv_nsec = POLL_NS});
    }
    return cpu_us;
}
