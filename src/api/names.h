/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may call a nameserver, by tokens as everywhere: lists are for all roles, workers register with the role worker or
 * admin, servers and other nameservers with admin. The queues of a token are held against the app: its own queue has its name.
 */
#ifndef MR_API_NAMES_H
#define MR_API_NAMES_H

#include "api/access.h"
#include "names/service.h"

/* For mr_names_options.may, with a struct mr_access as arg. Loop thread. */
bool mr_names_access(struct mr_call *call, enum mr_names_right right, struct mr_slice app,
                     void *arg);

#endif
