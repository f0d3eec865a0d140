/* The state of the one step that a launcher runs, shared by step.c, permit.c and events.c. */
#ifndef STOKER_STEP_H
#define STOKER_STEP_H

#include "launcher.h"

#include <limits.h>
#include <signal.h>

extern struct step {
    char **command;
    char *words[FIELDS_MAX]; /* what the governor adds to the command for this attempt */
    char **permitted;        /* the command with them */
    pid_t parent;
    sigset_t inherited; /* the signal mask we were started with; the command gets it */
    int signals;        /* a signalfd */
    int run;            /* a pidfd of our `stoker run`; -1 if it is unknown */
    int builder;        /* a pidfd of our parent's parent: ninja starts us through a shell */
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
    int interrupted; /* the signal by which the user ended it; nothing is repeated then */
    char *complaint; /* the governor's message when it gave up the step */
    /* Their buffers are large: what is used lies together, on few pages. */
    struct output output;
    struct attempt attempt; /* without a command while we wait */
    struct channel governor;
} step;

/* When a governor dies, its run starts another one, which takes a moment. */
enum { RETURNS = 3, RETURN_US = 2 * 1000 * 1000, LOOK_US = 50 * 1000 };

/* After this many timeouts in a row the governor hangs. A single one may be ours: we were stopped. */
enum { MOST_TIMEOUTS = 3, TIMEOUT_S = 10 };

/* An environment variable, or another value if it is not set or empty. */
const char *setting(const char *name, const char *otherwise);

/* events.c: what can happen while a step waits or runs. */
enum event { TIME, MESSAGE, LOST, ENDED, INTERRUPTED, NOTHING };

/* Waits for one event until a time (0: without end). Output of the command is collected meanwhile. */
enum event next_event(int64_t until_us);

/* True if the last message begins with this word. */
bool heard(const char *word);

/* Sends the line to the governor. */
bool tell(void);

void governor_lives(void);

/* End this process as a signal would, or as its command has ended. */
_Noreturn void end_by(int signal_number);
_Noreturn void finish_step(void);

/* permit.c: asking, and waiting for a permit, a lease or a lock. */
void ask(void);

/* Writes the question about this step to the line. */
void line_question(void);

/* Waits for a lease, a permit or, without a governor, for a lock. Returns false if there is none of
 * them. */
bool wait_for_permit(void);

/* Tells the governor of a command that runs by a lease. From now on it is as if it had been asked. */
void adopt(void);

/* Keeps the governor's message when it gave up the step. */
void keep_complaint(void);

#endif
