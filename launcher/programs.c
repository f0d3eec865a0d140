/* The files of programs; see programs.h. */
#define _GNU_SOURCE
#include "programs.h"

#include "text.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* Reads the first bytes of a file and returns their number: 0 if it may not be read, less for a
 * folder. */
static long read_start(const char *path, void *start, size_t size)
{
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0)
        return 0;
    long length = syscall(SYS_read, file, start, size);
    syscall(SYS_close, file);
    return length;
}

enum program examine(const char *path)
{
    ElfW(Ehdr) header;
    if (syscall(SYS_faccessat, AT_FDCWD, path, X_OK) < 0)
        return ABSENT;
    long size = read_start(path, &header, sizeof header);
    if (size < 0)
        return ABSENT;
    if (size == 0)
        return HIDDEN;
    if (size < SELFMAG || !starts_with((char *)header.e_ident, ELFMAG))
        return SCRIPT;
    if (size < (long)sizeof header)
        return NATIVE;
    bool same = header.e_ident[EI_CLASS] == __ehdr_start.e_ident[EI_CLASS] &&
                header.e_machine == __ehdr_start.e_machine;
    return same ? NATIVE : FOREIGN;
}

bool is_dynamic(const char *path)
{
    ElfW(Ehdr) header;
    ElfW(Phdr) part = {.p_type = PT_NULL};
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    bool is_program = file >= 0 &&
                      syscall(SYS_read, file, &header, sizeof header) == (long)sizeof header &&
                      starts_with((char *)header.e_ident, ELFMAG);
    for (size_t number = 0; is_program && part.p_type != PT_INTERP && number < header.e_phnum; number++) {
        size_t at = header.e_phoff + number * sizeof part;
        if (syscall(SYS_pread64, file, &part, sizeof part, at) != (long)sizeof part)
            is_program = false;
    }
    if (file >= 0)
        syscall(SYS_close, file);
    return !is_program || part.p_type == PT_INTERP; /* a script is run by another program */
}

/* Writes folder and name as a path. False: that is too long. */
static bool join(char *path, size_t size, const char *folder, size_t length, const char *name)
{
    size_t rest = text_length(name);
    if (length == 0)
        folder = ".", length = 1;
    if (length + rest + 2 > size)
        return false;
    copy(path, folder, length);
    path[length] = '/';
    copy(path + length + 1, name, rest);
    return true;
}

const char *search_folders(const char *folders, const char *name, char *path, size_t size,
                           enum program *program)
{
    for (bool more = true; more;) {
        size_t length = 0;
        while (folders[length] && folders[length] != ':')
            length++;
        if (!join(path, size, folders, length, name))
            return NULL; /* it may be there */
        *program = examine(path);
        if (*program != ABSENT)
            return path;
        more = folders[length] == ':';
        folders += length + 1;
    }
    return NULL;
}

const char *locate(const char *file, bool search, char *path, size_t size, enum program *program)
{
    *program = ABSENT;
    if (!*file)
        return NULL;
    for (const char *at = file; *at; at++)
        if (*at == '/') {
            *program = examine(file);
            return *program == ABSENT ? NULL : file;
        }
    const char *folders = search ? variable(environ, "PATH") : "";
    return search_folders(folders ? folders : "/bin:/usr/bin", file, path, size, program);
}
