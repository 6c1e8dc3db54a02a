/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accept ENGINE [PATTERN]: the acceptance tests on embedded, remote or redis; those whose names fit the
 * pattern ("*22*"). With MR_SHARE="2/3" the second of three shares of them, which can run beside each other.
 * accept --worker ...: a worker of such a test.
 */
#include <stdio.h>

#include "accept/accept.h"
#include "accept/boss.h"
#include "accept/load.h"
#include "support/themes.h"

int main(int argc, char **argv)
{
    static const struct accept_engine *const engines[] = {&accept_embedded, &accept_remote,
                                                          &accept_redis};
    static int (*const parts[])(const struct accept_engine *) = {
        accept_submit,  accept_model,  accept_work,    accept_kill,   accept_order,
        accept_retry,   accept_result, accept_session, accept_leader, accept_share,
        accept_recover, accept_chaos,  accept_limit,   accept_soak,   accept_durable,
        accept_machine, accept_parts,  accept_address,
    };
    const struct accept_engine *engine = NULL;
    int failed = 0;
    themes_prepare();
    if (argc > 1 && strcmp(argv[1], "--worker") == 0)
        return accept_worker_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "--master") == 0)
        return accept_master_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "--boss") == 0)
        return boss_main(argc, argv);
    if (argc > 1 && strcmp(argv[1], "--load") == 0)
        return load_main(argc, argv);
    for (size_t i = 0; argc > 1 && i < sizeof engines / sizeof *engines; i++)
        if (strcmp(argv[1], engines[i]->name) == 0)
            engine = engines[i];
    if (!engine) {
        (void)fprintf(stderr, "usage: accept embedded|remote|redis [PATTERN]\n");
        return 2;
    }
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        failed += themes_in_share(i) ? parts[i](engine) : 0;
    return failed == 0 ? 0 : 1;
}
