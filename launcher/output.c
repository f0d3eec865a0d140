/* Buffers the command's output until its attempt counts: in memory, then in a file. If the disk is
 * full, output is written directly from then on. Independent of processes and of the governor. */
#define _GNU_SOURCE
#include "launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HELD_IN_MEMORY = 1 << 20, PIECE = 1 << 16 };

/* Pages that are never written use no memory. */
static char held[HELD_IN_MEMORY];

/* The header of each run of bytes of one stream, in memory and in the file. */
struct record {
    uint32_t stream, length;
};

static const int DESCRIPTORS[] = {STDOUT_FILENO, STDERR_FILENO};

static bool ours_are_one_file(void)
{
    struct stat out, err;
    return fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

bool output_open(struct output *output, const char *folder, int ends[2])
{
    int out[2], err[2];
    *output = (struct output)NO_OUTPUT;
    output->folder = folder;
    if (pipe2(out, O_CLOEXEC) < 0)
        return false;
    output->pipes[0] = out[0];
    ends[0] = ends[1] = out[1];
    if (ours_are_one_file())
        return true;
    if (pipe2(err, O_CLOEXEC) < 0) {
        close(ends[0]);
        output_discard(output);
        return false;
    }
    output->pipes[1] = err[0];
    ends[1] = err[1];
    return true;
}

/* Writes bytes of one stream; nothing more to stdout after an error there. */
static void pass(struct output *output, uint32_t stream, const char *bytes, size_t length)
{
    int descriptor = DESCRIPTORS[stream];
    while (length > 0 && !(stream == 0 && output->error)) {
        ssize_t count = write(descriptor, bytes, length);
        if (count >= 0) {
            bytes += count;
            length -= (size_t)count;
        } else if (errno == EAGAIN) { /* the reader may have made it non-blocking */
            poll(&(struct pollfd){.fd = descriptor, .events = POLLOUT}, 1, -1);
        } else if (errno != EINTR) {
            if (errno != EPIPE && stream == 0 && !ours_are_one_file())
                output->error = errno;
            return;
        }
    }
}

/* Creates an unlinked file, which disappears however this process ends. */
static int make_spill(const char *folder)
{
    char path[PATH_MAX];
    if (folder[0] == '\0' || snprintf(path, sizeof path, "%s/.output-XXXXXX", folder) >= PATH_MAX)
        return -1;
    int spill = mkostemp(path, O_CLOEXEC);
    if (spill >= 0)
        unlink(path);
    return spill;
}

/* Moves the buffer in memory to the file. A part that did not fit there is not counted. */
static bool spill(struct output *output)
{
    if (output->spill < 0 && (output->spill = make_spill(output->folder)) < 0)
        return false;
    for (size_t written = 0; written < output->used;) {
        ssize_t count = pwrite(output->spill, held + written, output->used - written,
                               output->spilled + (off_t)written);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return false;
        written += (size_t)count;
    }
    output->spilled += (off_t)output->used;
    output->used = 0;
    return true;
}

/* Copies buffered bytes; `at` counts the bytes of the file first, then those in memory. */
static size_t fetch(struct output *output, off_t at, void *bytes, size_t length)
{
    if (at < output->spilled) {
        ssize_t count = pread(output->spill, bytes, length, at);
        if (count <= 0)
            output->error = count < 0 ? errno : EIO;
        return count > 0 ? (size_t)count : 0;
    }
    memcpy(bytes, held + (at - output->spilled), length);
    return length;
}

void output_print(struct output *output)
{
    static char piece[PIECE];
    off_t end = output->spilled + (off_t)output->used;
    for (off_t at = 0; at < end;) {
        struct record record;
        if (fetch(output, at, &record, sizeof record) < sizeof record)
            return;
        at += (off_t)sizeof record;
        while (record.length > 0) {
            size_t wanted = record.length < sizeof piece ? record.length : sizeof piece;
            size_t count = fetch(output, at, piece, wanted);
            if (count == 0)
                return;
            pass(output, record.stream, piece, count);
            at += (off_t)count;
            record.length -= (uint32_t)count;
        }
    }
}

static void keep_tail(struct output *output, const char *bytes, size_t length)
{
    if (length > TAIL_BYTES) {
        bytes += length - TAIL_BYTES;
        length = TAIL_BYTES;
    }
    size_t kept = output->tail_length;
    if (kept + length > TAIL_BYTES) {
        size_t gone = kept + length - TAIL_BYTES;
        memmove(output->tail, output->tail + gone, kept - gone);
        kept -= gone;
    }
    memcpy(output->tail + kept, bytes, length);
    output->tail_length = kept + length;
}

static void hold(struct output *output, uint32_t stream, const char *bytes, size_t length)
{
    keep_tail(output, bytes, length);
    if (!output->passing && output->used + sizeof(struct record) + length > sizeof held &&
        !spill(output)) {
        output_print(output);
        output->passing = true;
        output->used = 0;
        output->spilled = 0;
    }
    if (output->passing) {
        pass(output, stream, bytes, length);
        return;
    }
    struct record record = {.stream = stream};
    if (output->used > 0)
        memcpy(&record, held + output->last, sizeof record);
    if (output->used == 0 || record.stream != stream) {
        record = (struct record){.stream = stream};
        output->last = output->used;
        output->used += sizeof record;
    }
    memcpy(held + output->used, bytes, length);
    output->used += length;
    record.length += (uint32_t)length;
    memcpy(held + output->last, &record, sizeof record);
}

static size_t collect(struct output *output, int stream, size_t most)
{
    static char piece[PIECE]; /* on the stack, an output of nothing would need pages too */
    ssize_t count = read(output->pipes[stream], piece, most < sizeof piece ? most : sizeof piece);
    if (count > 0) {
        hold(output, (uint32_t)stream, piece, (size_t)count);
        return (size_t)count;
    }
    if (count == 0 || errno != EINTR) {
        close(output->pipes[stream]);
        output->pipes[stream] = -1;
    }
    return 0;
}

void output_collect(struct output *output, int stream)
{
    collect(output, stream, PIECE);
}

void output_drain(struct output *output)
{
    for (int stream = 0; stream < 2; stream++) {
        int present = 0;
        if (output->pipes[stream] < 0 || ioctl(output->pipes[stream], FIONREAD, &present) < 0)
            continue;
        while (present > 0 && output->pipes[stream] >= 0)
            present -= (int)collect(output, stream, (size_t)present);
    }
}

void output_discard(struct output *output)
{
    for (int stream = 0; stream < 2; stream++)
        if (output->pipes[stream] >= 0)
            close(output->pipes[stream]);
    if (output->spill >= 0)
        close(output->spill);
    *output = (struct output)NO_OUTPUT;
}
