/* One run of the command under a keeper: it is started, measured, and reaped or killed. This file is
 * independent of the governor. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    /* The governor learns the keeper with the first sample, so it is soon; but a compile of a small C
     * file ends before it, so that it costs no reading of /proc and no message. */
    FIRST_SAMPLE_US = 25 * 1000,
    AFTER_PAUSE_US = 10 * 1000, /* soon, to stop processes that were missed */
    LONGEST_INTERVAL_US = 100 * 1000,
    REPORT_AFTER_US = 1000 * 1000,
    REPORT_SURELY_BYTES = 16 << 20,
    REPORT_LEAST_BYTES = 4 << 20, /* smaller changes are noise */
    REPORT_FRACTION = 20,
    /* A command is idle if its processes have used less than a twentieth of a CPU for a second, and busy
     * again with a tenth for a moment. One that polls a lock ten times a second uses less. */
    IDLE_US = 1000 * 1000,
    IDLE_FRACTION = 20,
    BUSY_US = 300 * 1000,
    BUSY_FRACTION = 10,
};

int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

_Noreturn void end_as(int status)
{
    if (WIFSIGNALED(status)) {
        sigset_t one;
        sigemptyset(&one);
        sigaddset(&one, WTERMSIG(status));
        prctl(PR_SET_DUMPABLE, 0); /* a core dump would be of this process instead of the compiler */
        signal(WTERMSIG(status), SIG_DFL);
        raise(WTERMSIG(status));
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        _exit(128 + WTERMSIG(status));
    }
    _exit(WEXITSTATUS(status));
}

/* The kernel kills what is repeated before ninja, sshd and the launcher. Raises the score but never lowers
 * it: in some containers every process already has 1000. */
static void raise_oom_score(void)
{
    static const char SCORE[] = "800"; /* of 1000 */
    char digits[16] = "";
    int file = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    if (read(file, digits, sizeof digits - 1) > 0 && atoi(digits) < atoi(SCORE) &&
        write(file, SCORE, sizeof SCORE - 1) < 0) {
        /* The kernel then chooses by size alone. */
    }
    close(file);
}

static _Noreturn void become_command(const struct attempt *attempt, const char *step,
                                     const sigset_t *mask, const int ends[2], pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1); /* the parent died before prctl took effect */
    if (command_repeats()) /* a command that must not be started twice would fail the build */
        raise_oom_score();
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    /* The process group is in the background of the terminal. If the signals are ignored, reading
     * from the terminal is an error; otherwise it would stop the command for ever. */
    signal(SIGTTIN, SIG_IGN);
    signal(SIGTTOU, SIG_IGN);
    dup2(ends[0], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    bool encloses = command_kind == CUSTOM || command_kind == REMOTE;
    setenv(encloses ? "STOKER_CUSTOM" : "STOKER_STEP", step, 1);
    if (attempt->folder[0])
        setenv("TMPDIR", attempt->folder, 1);
    sigprocmask(SIG_SETMASK, mask, NULL);
    command_execute(attempt->command);
}

/* Kills all that the command started, and removes what it wrote. mold writes to a file that it maps, and
 * whose name says nothing of the output: only the mapping shows which link it belongs to. */
static uint64_t kill_and_undo(pid_t group, bool repeated)
{
    char mold[PATH_MAX];
    bool links = command_kind != CUSTOM && tree_maps(getpid(), "/.mold-", mold);
    if (group > 0)
        kill(-group, SIGKILL);
    uint64_t cpu_us = tree_kill();
    if (links)
        unlink(mold);
    files_undo(repeated);
    return cpu_us;
}

/* Runs the keeper. It exits with the command's status, so that its parent sees that status. */
static _Noreturn void keep(const struct attempt *attempt, const char *step, const sigset_t *mask,
                           const int ends[2], pid_t launcher)
{
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    sigaddset(&awaited, SIGNAL_PARENT_DIED);
    setpgid(0, 0);
    prctl(PR_SET_NAME, "stoker-keeper"); /* killall -9 stoker-launcher must not kill both */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGNAL_PARENT_DIED);
    pid_t self = getpid();
    /* A child that is paused before exec would block us after vfork. What runs by a lease is not paused
     * that early, and most of it is so short that copying our memory would count. */
    pid_t compiler = getppid() != launcher ? -1 : attempt->leased ? vfork() : fork();
    if (compiler == 0)
        become_command(attempt, step, mask, ends, self);
    if (compiler < 0 && getppid() == launcher) /* fork failed: the command replaces the keeper */
        become_command(attempt, step, mask, ends, launcher);
    while (compiler > 0 && getppid() == launcher) {
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
            if (pid == compiler)
                end_as(status);
        sigwaitinfo(&awaited, NULL);
    }
    kill_and_undo(0, false); /* the group is ours */
    folder_remove(attempt->folder);
    _exit(126);
}

bool attempt_start(struct attempt *attempt, char **command, const char *step, const char *parent,
                   const sigset_t *mask, struct output *output, bool leased)
{
    int ends[2] = {STDOUT_FILENO, STDERR_FILENO};
    bool holds = command_repeats();
    pid_t launcher = getpid();
    *attempt = (struct attempt){.command = command, .leased = leased, .interval_us = FIRST_SAMPLE_US};
    if (holds)
        folder_make(attempt->folder, parent);
    if (holds && !output_open(output, attempt->folder, ends)) {
        folder_remove(attempt->folder);
        return false;
    }
    files_remember(command);
    attempt->started_us = attempt->sampled_us = attempt->reported_us = attempt->looked_us = now_us();
    attempt->next_sample_us = attempt->started_us + FIRST_SAMPLE_US;
    attempt->keeper = fork();
    if (attempt->keeper == 0)
        keep(attempt, step, mask, ends, launcher);
    if (holds)
        close(ends[0]);
    if (holds && ends[1] != ends[0])
        close(ends[1]);
    attempt->running = attempt->keeper > 0;
    if (!attempt->running) {
        output_discard(output);
        folder_remove(attempt->folder);
        return false;
    }
    setpgid(attempt->keeper, attempt->keeper); /* both do it: either may be first */
    return true;
}

static bool worth_reporting(const struct attempt *attempt, int64_t now)
{
    uint64_t moved = attempt->memory > attempt->reported ? attempt->memory - attempt->reported
                                                         : attempt->reported - attempt->memory;
    return moved > REPORT_SURELY_BYTES ||
           (moved > REPORT_LEAST_BYTES && moved > attempt->reported / REPORT_FRACTION) ||
           now - attempt->reported_us >= REPORT_AFTER_US;
}

static void integrate(struct attempt *attempt, uint64_t memory, int64_t now)
{
    double mean = ((double)attempt->memory + (double)memory) / 2;
    if (attempt->paused)
        attempt->paused_us += now - attempt->sampled_us;
    else
        attempt->byte_us += mean * (double)(now - attempt->sampled_us);
    attempt->memory = memory;
    attempt->sampled_us = now;
    if (memory > attempt->peak)
        attempt->peak = memory;
}

/* Notes whether the command uses a CPU. One that is ready to run may get none on a busy machine. */
static void judge_idleness(struct attempt *attempt, const struct tree_use *use, int64_t now)
{
    int64_t passed = now - attempt->looked_us;
    uint64_t more = use->ticks > attempt->ticks ? use->ticks - attempt->ticks : attempt->ticks - use->ticks;
    int64_t used = (int64_t)more * 1000000 / sysconf(_SC_CLK_TCK);
    attempt->idle = !use->works && used < passed / (attempt->idle ? BUSY_FRACTION : IDLE_FRACTION);
    attempt->ticks = use->ticks;
    attempt->looked_us = now;
}

bool attempt_sample(struct attempt *attempt)
{
    int64_t now = now_us();
    if (now < attempt->next_sample_us)
        return false;
    if (attempt->paused)
        tree_pause(attempt->keeper); /* those forked before their parent stopped */
    bool was_idle = attempt->idle;
    bool due = !attempt->paused && now - attempt->looked_us >= (attempt->idle ? BUSY_US : IDLE_US);
    struct tree_use use = tree_use(attempt->keeper, due);
    if (due)
        judge_idleness(attempt, &use, now);
    integrate(attempt, use.memory, now);
    attempt->interval_us += attempt->interval_us / 2;
    if (attempt->interval_us > LONGEST_INTERVAL_US)
        attempt->interval_us = LONGEST_INTERVAL_US;
    attempt->next_sample_us = now + attempt->interval_us;
    if (attempt->idle == was_idle && !worth_reporting(attempt, now))
        return false;
    attempt->reported = attempt->memory;
    attempt->reported_us = now;
    return true;
}

void attempt_pause(struct attempt *attempt)
{
    if (!attempt->running || attempt->paused)
        return;
    integrate(attempt, tree_use(attempt->keeper, false).memory, now_us());
    attempt->paused = true;
    tree_pause(attempt->keeper);
    attempt->interval_us = AFTER_PAUSE_US;
    attempt->next_sample_us = attempt->sampled_us + AFTER_PAUSE_US;
}

/* Starts from this process, because orphans of the command may be our children by now. Signals twice:
 * a process that lost its parent during the first walk may have moved to a part already visited. */
void attempt_resume(struct attempt *attempt)
{
    if (!attempt->paused)
        return;
    integrate(attempt, attempt->memory, now_us());
    attempt->paused = false;
    attempt->looked_us = attempt->sampled_us;
    tree_resume(getpid());
    tree_resume(getpid());
}

static void end(struct attempt *attempt)
{
    attempt_resume(attempt); /* a daemon must not stay stopped */
    attempt->running = false;
    attempt->ended_us = now_us();
    integrate(attempt, attempt->memory, attempt->ended_us);
}

void attempt_reap(struct attempt *attempt)
{
    int status;
    struct rusage usage;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &usage)) > 0) {
        attempt->cpu_us += tree_cpu_us(&usage);
        if (pid == attempt->keeper && !attempt->peak) /* it ended before the first sample */
            attempt->peak = (uint64_t)usage.ru_maxrss << 10;
        if (pid == attempt->keeper) {
            attempt->status = status;
            end(attempt);
        }
    }
    attempt->daemons = pid == 0;
    /* Processes left by a command that exited are daemons; those of a killed command are orphans. */
    if (!attempt->running && attempt->daemons && WIFSIGNALED(attempt->status)) {
        attempt->cpu_us += tree_kill();
        attempt->daemons = false;
    }
}

void attempt_abandon(struct attempt *attempt, bool repeated)
{
    if (!attempt->command)
        return;
    attempt->cpu_us += kill_and_undo(attempt->running ? attempt->keeper : 0, repeated);
    if (attempt->running)
        end(attempt);
    attempt->daemons = false;
    attempt_tidy(attempt);
    attempt->command = NULL;
}

void attempt_tidy(struct attempt *attempt)
{
    if (attempt->daemons)
        return;
    folder_remove(attempt->folder);
    attempt->folder[0] = '\0';
}

struct account attempt_account(const struct attempt *attempt)
{
    return (struct account){
        .wall_us = (uint64_t)(attempt->ended_us - attempt->started_us - attempt->paused_us),
        .cpu_us = attempt->cpu_us,
        .peak_bytes = attempt->peak,
        .byte_seconds = (uint64_t)(attempt->byte_us / 1e6),
    };
}
