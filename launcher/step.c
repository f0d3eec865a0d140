/* The conversation with the governor about one step: ask, wait, run, report. If the governor is lost,
 * a running step continues without it, and waiting steps take turns. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* A launcher runs one step. */
static struct {
    char **command;
    char *words[FIELDS_MAX]; /* what the governor adds to the command for this attempt */
    char **permitted;        /* the command with them */
    pid_t parent;
    sigset_t inherited; /* the signal mask we were started with; the command gets it */
    int signals;        /* a signalfd */
    int run;            /* a pidfd of our `stoker run`; -1 if it is unknown */
    int builder;        /* a pidfd of our parent's parent: ninja starts us through a shell */
    struct channel governor;
    struct line line; /* the next messages */
    struct message heard;
    int64_t timeout_us;  /* after this time without a message we send a ping */
    int64_t deadline_us; /* when that is due */
    int timeouts;        /* in a row */
    int losses;          /* governors that were lost while we waited */
    bool refused;        /* the governor is another user's */
    bool asked;          /* this governor, or the one before it */
    uint64_t family;     /* of commands that may run by a lease; 0 if there are no leases for us */
    int64_t asked_us;    /* when we were started */
    bool leased;         /* the command runs by a lease; the governor was not told */
    bool adopted;        /* it ran by a lease, and the governor was told */
    char id[32];
    bool told_start; /* the governor knows that the command runs */
    struct attempt attempt; /* without a command while we wait */
    struct output output;
    int interrupted; /* the signal by which the user ended it; nothing is repeated then */
    char *complaint; /* the governor's message when it gave up the step */
} step = {.governor = {.socket = -1}, .output = NO_OUTPUT};

/* When a governor dies, its run starts another one, which takes a moment. */
enum { RETURNS = 3, RETURN_US = 2 * 1000 * 1000, LOOK_US = 50 * 1000 };

/* After this many timeouts in a row the governor hangs. A single one may be ours: we were stopped. */
enum { MOST_TIMEOUTS = 3, TIMEOUT_S = 10 };

/* What a command may use by a lease, as govern/leases.py counts it. */
enum { LEASE_BYTES = 256 << 20, LEASE_US = 1000 * 1000, LEASE_SAMPLE_US = 100 * 1000 };

static const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

/* ---- the end ---------------------------------------------------------------------------------*/

static _Noreturn void end_by(int signal_number)
{
    attempt_abandon(&step.attempt, false);
    end_as(signal_number);
}

/* A compiler that crashes writes a reproducer to its TMPDIR and names it. That folder vanishes with the
 * run, so the files move to the TMPDIR of the build. */
static void keep_leftovers(void)
{
    char kept[PATH_MAX];
    struct attempt *attempt = &step.attempt;
    bool failed = WIFEXITED(attempt->status) && attempt->status && !step.interrupted;
    if (failed && !attempt->daemons && folder_keep(attempt->folder, setting("TMPDIR", "/tmp"), kept))
        dprintf(STDERR_FILENO, "stoker: what this command left in %s is now in %s\n",
                attempt->folder, kept);
    attempt_tidy(attempt);
}

static _Noreturn void finish_step(void)
{
    int status = step.attempt.status;
    /* From here on a signal ends this process as it would have ended the command. */
    sigprocmask(SIG_SETMASK, &step.inherited, NULL);
    output_print(&step.output);
    if (step.output.error)
        dprintf(STDERR_FILENO, "stoker-launcher: cannot write the output: %s\n",
                strerror(step.output.error));
    keep_leftovers();
    if (step.complaint)
        dprintf(STDERR_FILENO, "%s\n", step.complaint);
    end_as(status == 0 && (step.complaint || step.output.error) ? 1 << 8 : status);
}

/* ---- what can happen -------------------------------------------------------------------------*/

enum event { TIME, MESSAGE, LOST, ENDED, INTERRUPTED, NOTHING };

static enum event on_signal(int number)
{
    if (number == SIGCHLD) {
        attempt_reap(&step.attempt);
        return ENDED;
    }
    if (number == SIGNAL_PARENT_DIED) {
        /* The kernel also sends it when only the thread that started us exits; the parent is unchanged
         * then. */
        if (getppid() != step.parent)
            end_by(SIGTERM);
        return NOTHING;
    }
    bool job_control = number == SIGTSTP || number == SIGCONT;
    if (!job_control)
        attempt_resume(&step.attempt); /* so that the command can handle the signal */
    if (step.attempt.running) {
        kill(-step.attempt.keeper, number);
        if (!job_control) /* a command that the terminal has stopped cannot handle it */
            kill(-step.attempt.keeper, SIGCONT);
    }
    if (number == SIGTSTP)
        raise(SIGSTOP);
    if (job_control)
        return NOTHING;
    if (!step.attempt.command)
        end_by(number);
    step.interrupted = number;
    return INTERRUPTED;
}

static enum event on_readable_signals(void)
{
    struct signalfd_siginfo info;
    bool whole = read(step.signals, &info, sizeof info) == sizeof info;
    return whole ? on_signal((int)info.ssi_signo) : NOTHING;
}

static void sleep_until_ready(struct pollfd *sources, nfds_t count, int64_t until_us)
{
    int64_t left_us = until_us ? until_us - now_us() : 0;
    if (left_us < 0)
        left_us = 0;
    struct timespec left = {.tv_sec = left_us / 1000000, .tv_nsec = left_us % 1000000 * 1000};
    if (ppoll(sources, count, until_us ? &left : NULL, NULL) < 0)
        for (nfds_t i = 0; i < count; i++)
            sources[i].revents = 0;
}

static enum event on_message(void)
{
    if (message_is(&step.heard, "end")) /* the run is gone */
        end_by(SIGTERM);
    return MESSAGE;
}

static void governor_lives(void)
{
    step.timeouts = 0;
    step.deadline_us = now_us() + step.timeout_us;
}

static enum event lose_governor(void)
{
    if (step.governor.length == sizeof step.governor.input)
        step.losses = RETURNS; /* it violates the protocol but is alive, so no other will start */
    channel_close(&step.governor);
    return LOST;
}

/* Waiting may take hours, so only an answer distinguishes a busy governor from one that hangs. */
static enum event on_timeout(void)
{
    if (++step.timeouts == MOST_TIMEOUTS)
        return lose_governor();
    line_ping(&step.line);
    channel_send(&step.governor, &step.line, false);
    step.deadline_us = now_us() + step.timeout_us;
    return NOTHING;
}

static int64_t earlier(int64_t one_us, int64_t other_us)
{
    return one_us && one_us < other_us ? one_us : other_us;
}

/* Waits for one event. Output of the command is collected while waiting. */
static enum event next_event(int64_t until_us)
{
    enum { SIGNALS, RUN, BUILDER, GOVERNOR, OUT, ERR, COUNT };
    struct pollfd sources[COUNT] = {
        [SIGNALS] = {.fd = step.signals, .events = POLLIN},
        [RUN] = {.fd = step.run, .events = POLLIN},
        [BUILDER] = {.fd = step.builder, .events = POLLIN},
        [GOVERNOR] = {.fd = step.governor.socket, .events = POLLIN},
        [OUT] = {.fd = step.output.pipes[0], .events = POLLIN},
        [ERR] = {.fd = step.output.pipes[1], .events = POLLIN},
    };
    bool governed = step.governor.socket >= 0;
    if (channel_take(&step.governor, &step.heard))
        return on_message();
    sleep_until_ready(sources, COUNT, governed ? earlier(until_us, step.deadline_us) : until_us);
    if (sources[RUN].revents || sources[BUILDER].revents)
        end_by(SIGTERM);
    if (sources[OUT].revents)
        output_collect(&step.output, 0);
    if (sources[ERR].revents)
        output_collect(&step.output, 1);
    if (sources[SIGNALS].revents)
        return on_readable_signals();
    if (sources[GOVERNOR].revents && !channel_receive(&step.governor))
        return lose_governor();
    if (sources[GOVERNOR].revents)
        governor_lives();
    else if (governed && now_us() >= step.deadline_us)
        return on_timeout();
    return until_us && now_us() >= until_us ? TIME : NOTHING;
}

static bool heard(const char *word)
{
    return message_is(&step.heard, word);
}

static bool tell(void)
{
    return channel_send(&step.governor, &step.line, false);
}

/* ---- waiting ---------------------------------------------------------------------------------*/

static void line_question(void)
{
    char folder[PATH_MAX];
    if (step.family)
        line_lease(&step.line, step.family, step.asked_us,
                   step.attempt.command ? step.attempt.started_us : 0);
    line_ask(&step.line, setting("STOKER_RUN", "0"), getcwd(folder, sizeof folder) ? folder : "",
             command_kind == REMOTE ? (unsigned)atoi(setting("STOKER_SLOTS", "0"))
                                    : command_cpus(step.command),
             setting("STOKER_CUSTOM", "0"), step.command);
}

static void ask(void)
{
    step.asked = true;
    int seconds = atoi(setting("STOKER_GOVERNOR_TIMEOUT", "0"));
    step.timeout_us = INT64_C(1000000) * (seconds > 0 ? seconds : TIMEOUT_S);
    if (!channel_connect(&step.governor, setting("STOKER_SOCKET", ""),
                         MOST_TIMEOUTS * step.timeout_us)) {
        step.refused = errno == EACCES;
        return;
    }
    line_question();
    if (!channel_send(&step.governor, &step.line, true))
        channel_close(&step.governor);
    governor_lives();
}

static int open_lock(const char *folder, int number)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/cpu%d", folder, number);
    return length < (int)sizeof path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
}

/* Unblocks signals while it waits, so that they end this process: no command is running yet. */
static void lock_and_wait(int lock)
{
    sigset_t ours, waiting = step.inherited;
    sigaddset(&waiting, SIGNAL_PARENT_DIED);
    sigprocmask(SIG_SETMASK, &waiting, &ours);
    flock(lock, LOCK_EX);
    sigprocmask(SIG_SETMASK, &ours, NULL);
}

/* Waits for one of the lock files, one per CPU, which limit parallel steps without a governor. The
 * lock is held until the launcher and its keeper exit. Returns false if there are no locks. */
static bool wait_for_turn(void)
{
    const char *folder = setting("STOKER_LOCKS", NULL);
    if (strcmp(setting("STOKER_CUSTOM", ""), "0") == 0)
        return true; /* the command that started us holds a lock and waits for us */
    int count = 0;
    for (int lock; folder && (lock = open_lock(folder, count)) >= 0; count++) {
        if (flock(lock, LOCK_EX | LOCK_NB) == 0)
            return true;
        close(lock);
    }
    if (count > 0)
        lock_and_wait(open_lock(folder, getpid() % count));
    return count > 0;
}

/* Counts this command as ungoverned in the file that `stoker run` has created; the run reports the
 * number when it exits. */
static void note_ungoverned(void)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof path, "%s/ungoverned-%s", setting("STOKER_LOCKS", ""),
                          setting("STOKER_RUN", "0"));
    int file = length < (int)sizeof path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    if (write(file, ".", 1) < 0) {
        /* It is not counted. Other parts report a full disk. */
    }
    close(file);
}

static void keep_complaint(void)
{
    const struct field *text = &step.heard.fields[1];
    step.complaint = step.heard.count > 1 ? strndup(text->bytes, text->length) : NULL;
    if (!step.complaint)
        step.complaint = "stoker gave up this step";
}

static void keep_id(void)
{
    const struct field *id = &step.heard.fields[1];
    int length = step.heard.count > 1 ? (int)id->length : 0;
    snprintf(step.id, sizeof step.id, "%.*s", length, id->bytes);
}

/* Adds the words of the permit to the command. They change what the command costs and not its result, so
 * they are left out if memory is short. */
static void keep_words(void)
{
    size_t count = 0;
    if (step.permitted != step.command)
        free(step.permitted);
    step.permitted = NULL;
    for (size_t i = 0; i < FIELDS_MAX; i++) {
        free(step.words[i]);
        step.words[i] = NULL;
    }
    for (size_t i = 2; i < step.heard.count && command_kind == COMPILE; i++) {
        const struct field *field = &step.heard.fields[i];
        if (!(step.words[count] = strndup(field->bytes, field->length)))
            break;
        count++;
    }
    if (count > 0)
        step.permitted = command_with(step.command, step.words, count);
    if (!step.permitted)
        step.permitted = step.command;
}

/* Asks the governor that replaces a lost one. Returns false if there is none. */
static bool ask_again(void)
{
    if (step.run < 0 || ++step.losses > RETURNS)
        return false;
    for (int64_t until_us = now_us() + RETURN_US; now_us() < until_us;) {
        next_event(now_us() + LOOK_US);
        ask();
        if (step.governor.socket >= 0)
            return true;
    }
    return false;
}

/* Takes a lease as soon as there is one. Returns false if our family gets none now. */
static bool take_lease(void)
{
    bool waited = false;
    while (!step.adopted && page_offers(step.family)) {
        if (page_take()) {
            strcpy(step.id, "lease");
            return step.leased = true;
        }
        waited = true;
        next_event(now_us()); /* signals, and the end of the run */
    }
    if (waited)
        page_leave();
    return false;
}

/* Tells the governor of a command that runs by a lease. From now on it is as if it had been asked. */
static void adopt(void)
{
    step.leased = false;
    step.adopted = true;
    ask();
}

/* Waits for a lease, a permit or, without a governor, for a lock. Returns false if there is none of
 * them. */
static bool wait_for_permit(void)
{
    if (step.governor.socket < 0 && take_lease())
        return true;
    if (!step.asked)
        ask();
    bool lost = step.governor.socket < 0 && !ask_again();
    while (!lost) {
        enum event event = next_event(0);
        if (event == MESSAGE && heard("run")) {
            keep_id();
            keep_words();
            return true;
        }
        if (event == MESSAGE && heard("fail")) {
            keep_complaint();
            finish_step();
        }
        if (event == MESSAGE && heard("lease")) {
            channel_close(&step.governor);
            if (!page_offers(step.family))
                step.family = 0; /* our page is that of a governor before this one, or too late */
            else if (take_lease())
                return true;
            ask();
        }
        lost = (step.governor.socket < 0 && !ask_again()) || (event == MESSAGE && heard("wrong_version"));
    }
    channel_close(&step.governor);
    strcpy(step.id, "0"); /* the id of a step without a governor */
    step.permitted = step.command;
    note_ungoverned();
    return wait_for_turn();
}

/* ---- running ---------------------------------------------------------------------------------*/

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
        line_memory(&step.line, step.attempt.memory, step.attempt.peak);
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

static void run_and_forget(void)
{
    if (run_to_the_end()) {
        if (counts())
            finish_step();
        forget_attempt();
        return;
    }
    forget_attempt();
    struct account account = attempt_account(&step.attempt);
    line_killed(&step.line, &account);
    if (!tell())
        channel_close(&step.governor);
}

/* ---- the life of a step ----------------------------------------------------------------------*/

/* Files that we open must not become the command's stdin, stdout or stderr. */
static void fill_standard_streams(void)
{
    int file;
    while ((file = open("/dev/null", O_RDWR)) >= 0 && file <= STDERR_FILENO)
        ;
    if (file >= 0)
        close(file);
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

static void end_watch(void)
{
    prctl(PR_SET_PDEATHSIG, 0);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    sigprocmask(SIG_SETMASK, &step.inherited, NULL);
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
    while (wait_for_permit() && start_attempt())
        run_and_forget();
    end_watch();
}
