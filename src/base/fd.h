/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where descriptors are put. The kernel gives the lowest number that is free: in a process that was
 * started with stdin, stdout or stderr closed that is one of theirs, and what somebody then prints goes
 * into a store's file or to a broker. So whoever makes a descriptor moves it away from there. Thread: any.
 */
#ifndef MR_BASE_FD_H
#define MR_BASE_FD_H

/* The descriptor as it is if its number is above last, else a close-on-exec copy that is, and fd is
 * closed, also on failure: -1 with errno. A negative fd is answered as it is, with errno untouched. */
int mr_fd_above(int fd, int last);
/* Above stdin, stdout and stderr. */
int mr_fd_apart(int fd);

#endif
