/* What can happen to a step while it waits or runs, and how it ends. */
#define _GNU_SOURCE
#include "step.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

const char *setting(const char *name, const char *otherwise)
{
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

_Noreturn void end_by(int signal_number)
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

_Noreturn void finish_step(void)
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

void governor_lives(void)
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

enum event next_event(int64_t until_us)
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

bool heard(const char *word)
{
    return message_is(&step.heard, word);
}

bool tell(void)
{
    return channel_send(&step.governor, &step.line, false);
}
