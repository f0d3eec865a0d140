/* The life of one step: ask, wait, run, report. If the governor is lost, a running step continues
 * without it. */
#define _GNU_SOURCE
#include "step.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

struct step step = {.governor = {.socket = -1}, .output = NO_OUTPUT};

/* What a command may use by a lease, as govern/server/leases.py counts it. */
enum { LEASE_BYTES = 256 << 20, LEASE_US = 1000 * 1000, LEASE_SAMPLE_US = 100 * 1000 };

static int open_process(pid_t pid)
{
    return pid > 1 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
}

/* Sends the keeper as a pidfd, because its process id may be different in the governor's namespace. */
static void tell_keeper(void)
{
    int keeper = open_process(step.attempt.keeper);
    channel_pass(&step.governor, &step.line, keeper);
    if (keeper >= 0)
        close(keeper);
}

/* Adds `started` to the next message, since most commands of a configure script exit before that.
 * Returns whether it was added now. */
static bool say_start(void)
{
    if (step.told_start)
        return false;
    line_started(&step.line);
    return step.told_start = true;
}

static bool start_attempt(void)
{
    const char *parent = setting("STOKER_SCRATCH", setting("TMPDIR", "/tmp"));
    step.told_start = false;
    if (!attempt_start(&step.attempt, step.permitted, step.id, parent, &step.inherited, &step.output,
                       step.leased))
        return false;
    if (step.leased) /* it is expected to end before, and the governor need not know the keeper */
        step.attempt.next_sample_us = step.attempt.started_us + LEASE_SAMPLE_US;
    return true;
}

/* A lease is for a command that is short and small. */
static bool outgrows_lease(void)
{
    return step.attempt.memory > LEASE_BYTES ||
           step.attempt.sampled_us - step.attempt.started_us > LEASE_US;
}

static void sample(void)
{
    bool worth_telling = attempt_sample(&step.attempt);
    if (step.leased && !outgrows_lease())
        return;
    if (step.leased)
        adopt();
    bool started = say_start();
    if (worth_telling)
        line_memory(&step.line, step.attempt.memory, step.attempt.peak, step.attempt.idle);
    if (started)
        tell_keeper();
    else if (worth_telling)
        tell(); /* a governor that is too busy to read gets the next one */
}

/* Returns true when the command exits, and false when the governor orders a kill. */
static bool run_to_the_end(void)
{
    while (step.attempt.running) {
        enum event event = next_event(step.attempt.next_sample_us);
        if (event == TIME)
            sample();
        if (event == MESSAGE && heard("run")) /* of an adopted command: it needs no lease any more */
            page_release();
        if (event == MESSAGE && heard("kill"))
            return false;
        if (event == MESSAGE && heard("pause") && !step.interrupted)
            attempt_pause(&step.attempt); /* an interrupted command must be able to exit */
        if (event == LOST || (event == MESSAGE && heard("resume")))
            attempt_resume(&step.attempt);
    }
    output_drain(&step.output);
    return true;
}

/* Reports the end of a command that ran by a lease. Returns false if the governor must be asked whether
 * it counts, or if there is no space for the report. */
static bool report(const struct account *account)
{
    if (step.attempt.status != 0 && !step.interrupted)
        return false;
    line_question();
    line_done(&step.line, step.attempt.status, account, "", 0);
    bool written = page_report(setting("STOKER_SOCKET", ""), &step.line);
    step.line.length = 0;
    if (written)
        attempt_tidy(&step.attempt);
    return written;
}

/* Reports the result. Returns whether ninja gets it, which is always the case after a success. A
 * `kill` that arrives after our `done` is ignored. */
static bool counts(void)
{
    struct account account = attempt_account(&step.attempt);
    page_release();
    if (step.leased && report(&account))
        return true;
    if (step.leased)
        adopt();
    say_start();
    line_done(&step.line, step.attempt.status, &account, step.output.tail, step.output.tail_length);
    bool decided = !tell() || step.interrupted || step.attempt.status == 0;
    if (step.attempt.status == 0)
        attempt_tidy(&step.attempt);
    while (!decided) {
        enum event event = next_event(0);
        if (event == MESSAGE && heard("again"))
            return false;
        if (event == MESSAGE && heard("fail"))
            keep_complaint();
        decided = event == LOST || event == INTERRUPTED ||
                  (event == MESSAGE && (heard("release") || heard("fail")));
    }
    return true;
}

static void forget_attempt(void)
{
    attempt_abandon(&step.attempt, !step.interrupted);
    page_release();
    output_discard(&step.output);
    if (step.interrupted)
        end_as(step.interrupted);
}

static void end_watch(void)
{
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigprocmask(SIG_SETMASK, &step.inherited, NULL);
}

/* True for a compile that may succeed here: it was sent away, and did not end well. */
static bool may_succeed_here(void)
{
    return command_kind == REMOTE && step.attempt.status != 0 && !step.interrupted &&
           strcmp(setting("DISTCC_FALLBACK", "1"), "0") != 0;
}

/* Replaces this process by a launcher of the compile that was sent away. */
static _Noreturn void compile_here(void)
{
    char *self = "/proc/self/exe", **command = step.command;
    channel_close(&step.governor);
    end_watch();
    *command = self; /* the distributor; the compiler's own command follows */
    execv(self, command);
    _exit(127);
}

static void run_and_forget(void)
{
    if (run_to_the_end()) {
        bool decided = counts();
        if (decided && !may_succeed_here())
            finish_step();
        forget_attempt();
        if (decided)
            compile_here();
        return;
    }
    forget_attempt();
    struct account account = attempt_account(&step.attempt);
    line_killed(&step.line, &account);
    if (!tell())
        channel_close(&step.governor);
}

/* Files that we open must not become the command's stdin, stdout or stderr. */
static void fill_standard_streams(void)
{
    for (int file = STDIN_FILENO; file <= STDERR_FILENO; file++)
        if (fcntl(file, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            return;
}

/* Returns the process id of our `stoker run`; zero if that is in another pid namespace. */
static pid_t run_process(void)
{
    struct stat ours;
    long number = 0;
    unsigned long long namespace = 0;
    sscanf(setting("STOKER_PROCESS", ""), "%ld %llu", &number, &namespace);
    bool here = stat("/proc/self/ns/pid", &ours) == 0 && ours.st_ino == namespace;
    return here && number > 1 && number < INT_MAX ? (pid_t)number : 0;
}

/* Signals are read from a signalfd. SIGPIPE and SIGXFSZ are blocked, so that write returns an error;
 * SIGTTIN and SIGTTOU are blocked, so that the terminal does not stop us or the keeper. */
static void begin_watch(void)
{
    sigset_t watched;
    static const int SIGNALS[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGCHLD};
    sigemptyset(&watched);
    for (size_t i = 0; i < sizeof SIGNALS / sizeof *SIGNALS; i++)
        sigaddset(&watched, SIGNALS[i]);
    sigaddset(&watched, SIGNAL_PARENT_DIED);
    signal(SIGCHLD, SIG_DFL); /* our parent may have ignored it */
    step.signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    sigaddset(&watched, SIGPIPE);
    sigaddset(&watched, SIGXFSZ);
    sigaddset(&watched, SIGTTIN);
    sigaddset(&watched, SIGTTOU);
    sigprocmask(SIG_BLOCK, &watched, &step.inherited);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    prctl(PR_SET_PDEATHSIG, SIGNAL_PARENT_DIED);
    pid_t run = run_process();
    step.run = open_process(run);
    step.builder = open_process(run && step.parent == run ? 0 : tree_grandparent());
}

void step_run(char **command)
{
    step.command = step.permitted = command;
    step.parent = getppid();
    fill_standard_streams();
    step.asked_us = now_us();
    if (command_kind == COMPILE && command_cpus(command) == 1 &&
        page_open(setting("STOKER_SOCKET", "")))
        step.family = page_family(command);
    if (!page_offers(step.family))
        ask();
    if (step.refused)
        return;
    begin_watch();
    if (step.signals < 0) { /* no more files may be opened */
        channel_close(&step.governor);
        end_watch();
        return;
    }
    while (wait_for_permit() && start_attempt())
        run_and_forget();
    end_watch();
}
