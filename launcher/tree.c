/* A process and all it started, as /proc shows them; unaware of why anyone asks. */
#define _GNU_SOURCE
#include "launcher.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct pids {
    pid_t *items;
    size_t count, capacity;
};

/* For kernels that do not list the children of a thread: all processes, each before its parent. */
static struct {
    bool needed, known;
    struct pids pairs;
} census;

static void append(struct pids *pids, pid_t pid)
{
    if (pids->count == pids->capacity) {
        size_t capacity = pids->capacity ? 2 * pids->capacity : 64;
        pid_t *items = realloc(pids->items, capacity * sizeof *items);
        if (!items)
            return; /* a sample is too low; a kill looks again */
        pids->items = items;
        pids->capacity = capacity;
    }
    pids->items[pids->count++] = pid;
}

/* The first bytes of a file as a string; empty when there is none. */
static const char *read_text(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = file >= 0 ? read(file, text, size - 1) : 0;
    if (file >= 0)
        close(file);
    text[length > 0 ? length : 0] = '\0';
    return text;
}

static uint64_t field_of(const char *status, const char *name)
{
    const char *found = strstr(status, name);
    return found ? strtoull(found + strlen(name), NULL, 10) : 0;
}

pid_t tree_parent(pid_t pid)
{
    char path[64], text[512];
    pid_t parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    const char *name_end = strrchr(read_text(path, text, sizeof text), ')');
    return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 ? parent : 0;
}

static void add_to_census(pid_t pid)
{
    size_t before = census.pairs.count;
    append(&census.pairs, pid);
    append(&census.pairs, tree_parent(pid));
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
            append(found, census.pairs.items[i]);
}

/* Whole numbers only: one that the end of the buffer cut would be somebody else's. */
static void append_listed(struct pids *found, const char *list)
{
    for (char *end; isdigit((unsigned char)*list); list = end + 1) {
        long pid = strtol(list, &end, 10);
        if (*end != ' ')
            return;
        append(found, (pid_t)pid);
    }
}

static void append_children_of_thread(struct pids *found, pid_t pid, pid_t thread)
{
    char path[64], list[16384];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", pid, thread);
    append_listed(found, read_text(path, list, sizeof list));
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
#ifdef STOKER_CENSUS
    return false;
#else
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
    return access(path, R_OK) == 0;
#endif
}

static void prepare(void)
{
    if (!census.known)
        census.needed = !kernel_lists_children();
    census.known = true;
    if (census.needed)
        take_census();
}

/* Finds all descendants and gives what they hold in memory. */
static uint64_t walk(pid_t root, struct pids *found)
{
    uint64_t kib = 0;
    prepare();
    found->count = 0;
    append_children(found, root, false);
    for (size_t i = 0; i < found->count; i++) {
        char path[64], status[4096];
        snprintf(path, sizeof path, "/proc/%d/status", found->items[i]);
        read_text(path, status, sizeof status);
        kib += field_of(status, "RssAnon:") + field_of(status, "RssShmem:");
        append_children(found, found->items[i], field_of(status, "Threads:") > 1);
    }
    return kib << 10;
}

uint64_t tree_memory(pid_t root)
{
    static struct pids found;
    return walk(root, &found);
}

uint64_t tree_cpu_us(const struct rusage *usage)
{
    return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec);
}

/* All are found before the first is told: one that goes on might end and hide its children. */
void tree_signal(pid_t root, int number)
{
    static struct pids found;
    walk(root, &found);
    for (size_t i = 0; i < found.count; i++)
        kill(found.items[i], number);
}

uint64_t tree_kill(void)
{
    uint64_t cpu_us = 0;
    for (;;) {
        tree_signal(getpid(), SIGKILL);
        /* One that was forked during the walk becomes our child when its parent dies, and that
         * death comes here: so each death is followed by another look. */
        struct rusage usage;
        if (wait4(-1, NULL, 0, &usage) >= 0)
            cpu_us += tree_cpu_us(&usage);
        else if (errno == ECHILD)
            return cpu_us;
    }
}
