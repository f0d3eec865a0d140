/* Leases: places that the governor has given to short commands in advance, in a page of shared memory,
 * so that most of them start without a message.
 *
 * The page says how many places there are and which families of commands may take one. A place is taken
 * by locking the byte of that number in the page's file. The lock belongs to the open file that launcher
 * and keeper share, so the kernel gives the place back when both are gone, however they end and in
 * whichever pid namespace. Locks are slow where there are many, so a bit per place says which of them are
 * worth a try. Each word of the page has one writing side; a wrong one costs time only. */
#define _GNU_SOURCE
#include "launcher.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAGE_VERSION = 2, FAMILIES = 1024, MOST_PLACES = 1024, WORD_BITS = 64 };

/* As src/stoker/govern/server/leases.py writes it. */
struct shared {
    uint32_t version;
    uint32_t places;   /* that leases may take now */
    int64_t beat_us;   /* when the governor wrote last */
    uint32_t released; /* counts leases that ended; launchers write it and wait for it */
    uint32_t unused;
    uint64_t taken[MOST_PLACES / WORD_BITS]; /* a bit per place; launchers write it */
    uint64_t families[FAMILIES];             /* each at its number modulo FAMILIES */
};

enum { FUTEX_WAIT = 0, FUTEX_WAKE = 1 }; /* of linux/futex.h, which musl lacks */
enum { STALE_US = 1000 * 1000, SEARCH_US = 1000 * 1000 };

static struct {
    int file;
    int place; /* the one that we have; -1 if none */
    struct shared *shared;
} page = {.file = -1, .place = -1};

/* Words that name files of one compile say nothing about what it needs. */
static bool is_of_family(const char *word)
{
    return word[0] == '-' && word[1] != 'o' && word[1] != 'M';
}

uint64_t page_family(char **command)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (char **word = command; *word; word++) {
        if (word[0][0] == '@')
            return 0;
        if (word != command && !is_of_family(*word))
            continue;
        for (const char *byte = *word;; byte++) {
            hash = (hash ^ (unsigned char)*byte) * UINT64_C(0x100000001b3);
            if (!*byte)
                break;
        }
    }
    return hash >> 1 | 1; /* 63 bits, as the protocol has, and never 0 */
}

static int open_ours(const char *socket, const char *suffix, int flags, mode_t type)
{
    char path[PATH_MAX];
    struct stat found;
    int length = snprintf(path, sizeof path, "%s%s", socket, suffix);
    if (!*socket || length >= (int)sizeof path)
        return -1;
    int file = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file >= 0 && fstat(file, &found) == 0 && found.st_uid == geteuid() &&
        found.st_mode == (type | S_IRUSR | S_IWUSR) &&
        (type != S_IFREG || found.st_size == sizeof(struct shared)))
        return file;
    if (file >= 0)
        close(file);
    return -1;
}

bool page_open(const char *socket)
{
    page.file = open_ours(socket, ".page", O_RDWR, S_IFREG);
    if (page.file < 0)
        return false;
    void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED, page.file, 0);
    if (memory == MAP_FAILED)
        return false;
    page.shared = memory;
    return __atomic_load_n(&page.shared->version, __ATOMIC_RELAXED) == PAGE_VERSION;
}

static uint32_t places(void)
{
    uint32_t count = __atomic_load_n(&page.shared->places, __ATOMIC_ACQUIRE);
    return count < MOST_PLACES ? count : 0;
}

bool page_offers(uint64_t family)
{
    if (!family || !page.shared || places() == 0)
        return false;
    int64_t age_us = now_us() - __atomic_load_n(&page.shared->beat_us, __ATOMIC_RELAXED);
    return age_us >= 0 && age_us < STALE_US &&
           __atomic_load_n(&page.shared->families[family % FAMILIES], __ATOMIC_RELAXED) == family;
}

static bool lock_place(int place, short how)
{
    struct flock range = {.l_type = how, .l_start = place, .l_len = 1};
    return fcntl(page.file, F_OFD_SETLK, &range) == 0;
}

/* Returns the places in a word of `taken` that no bit claims. */
static uint64_t unclaimed(uint32_t word)
{
    uint32_t count = places(), first = word * WORD_BITS;
    uint64_t existing = count >= first + WORD_BITS ? ~UINT64_C(0)
                        : count > first            ? (UINT64_C(1) << (count - first)) - 1
                                                   : 0;
    return existing & ~__atomic_load_n(&page.shared->taken[word], __ATOMIC_ACQUIRE);
}

static bool claim(int place)
{
    uint64_t bit = UINT64_C(1) << place % WORD_BITS;
    return !(__atomic_fetch_or(&page.shared->taken[place / WORD_BITS], bit, __ATOMIC_ACQ_REL) & bit);
}

static bool take_unclaimed(void)
{
    for (uint32_t word = 0; word < MOST_PLACES / WORD_BITS; word++)
        for (uint64_t idle; (idle = unclaimed(word));) {
            int place = (int)(word * WORD_BITS) + __builtin_ctzll(idle);
            if (claim(place) && lock_place(place, F_WRLCK)) {
                page.place = place;
                return true;
            }
        }
    return false;
}

/* Takes the place of a launcher that was killed and left its bit. */
static bool take_abandoned(void)
{
    for (int place = 0; place < (int)places(); place++)
        if (lock_place(place, F_WRLCK)) {
            claim(place);
            page.place = place;
            return true;
        }
    return false;
}

bool page_take(void)
{
    static const struct timespec LONGEST = {.tv_sec = 1};
    static int64_t search_us; /* when to try places in spite of their bits */
    uint32_t before = __atomic_load_n(&page.shared->released, __ATOMIC_ACQUIRE);
    if (take_unclaimed())
        return true;
    if (!search_us)
        search_us = now_us() + SEARCH_US;
    if (now_us() >= search_us) {
        search_us = 0;
        if (take_abandoned())
            return true;
    }
    syscall(SYS_futex, &page.shared->released, FUTEX_WAIT, before, &LONGEST, NULL, 0);
    return false;
}

static void wake(int count)
{
    syscall(SYS_futex, &page.shared->released, FUTEX_WAKE, count, NULL, NULL, 0);
}

void page_leave(void)
{
    __atomic_add_fetch(&page.shared->released, 1, __ATOMIC_RELEASE);
    wake(INT_MAX);
}

void page_release(void)
{
    if (page.place < 0)
        return;
    lock_place(page.place, F_UNLCK);
    __atomic_fetch_and(&page.shared->taken[page.place / WORD_BITS],
                       ~(UINT64_C(1) << page.place % WORD_BITS), __ATOMIC_RELEASE);
    page.place = -1;
    __atomic_add_fetch(&page.shared->released, 1, __ATOMIC_RELEASE);
    int idle = 0; /* more than ours if the governor has granted more meanwhile */
    for (uint32_t word = 0; word < MOST_PLACES / WORD_BITS; word++)
        idle += __builtin_popcountll(unclaimed(word));
    wake(idle > 0 ? idle : 1); /* one sees that places were withdrawn, and tells the others */
}

bool page_report(const char *socket, const struct line *line)
{
    if (line->failed || line->length > PIPE_BUF) /* a longer one could be mixed with others */
        return false;
    int reports = open_ours(socket, ".reports", O_WRONLY, S_IFIFO);
    bool written = reports >= 0 && write(reports, line->bytes, line->length) == (ssize_t)line->length;
    if (reports >= 0)
        close(reports);
    return written;
}
