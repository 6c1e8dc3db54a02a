/* SPDX-License-Identifier: Apache-2.0 */
/* Every message of proto/millrace/v1. test_golden_wire says when one is missing. */
#ifndef MR_TESTS_GOLDEN_MESSAGES_H
#define MR_TESTS_GOLDEN_MESSAGES_H

#include "millrace/v1/events.pb-c.h"
#include "millrace/v1/job.pb-c.h"
#include "millrace/v1/jobs.pb-c.h"
#include "millrace/v1/names.pb-c.h"
#include "millrace/v1/nodes.pb-c.h"
#include "millrace/v1/queues.pb-c.h"
#include "millrace/v1/results.pb-c.h"
#include "millrace/v1/server.pb-c.h"
#include "millrace/v1/task.pb-c.h"
#include "millrace/v1/tasks.pb-c.h"
#include "millrace/v1/timer.pb-c.h"
#include "millrace/v1/timers.pb-c.h"
#include "millrace/v1/tokens.pb-c.h"
#include "millrace/v1/work.pb-c.h"

/* clang-format off */
#define GOLDEN_MESSAGES(X) \
    X(app_workers) X(assign_request) X(assign_response) X(assignment) X(backup_request) X(beat) \
    X(beaten) X(begun) X(bye) X(carry_request) X(control_item) X(control_request) \
    X(control_response) X(empty) X(enqueue_request) X(enqueue_response) X(enqueue_result) \
    X(event) X(finish) X(finish_item) X(finish_request) X(finish_response) X(finished) \
    X(firing) X(gather_request) X(gather_response) X(gathered_request) X(gathered_response) \
    X(get_request) X(header) X(hello) X(job) X(job_definition) X(job_event) X(job_list_request) \
    X(job_list_response) X(job_piece) X(job_request) X(job_stage) X(job_submit_request) \
    X(job_watch_request) X(leader) X(limit) X(list_request) X(list_response) X(move) \
    X(name_app) X(name_entry) X(name_list_request) X(name_list_response) X(name_load) \
    X(name_look) X(name_look_request) X(name_message) X(name_peer) X(name_registered) \
    X(name_server_body) X(name_worker_body) X(new_task) X(node) X(node_list_request) \
    X(node_list_response) X(owner) X(part) X(part_list_request) X(part_list_response) \
    X(priority_limit) X(progress) X(queue) X(queue_assign_request) X(queue_day) \
    X(queue_history_request) X(queue_history_response) X(queue_limit_request) \
    X(queue_limits_request) X(queue_limits_response) X(queue_list_request) \
    X(queue_list_response) X(queue_max_length_request) X(queue_partitions_request) \
    X(queue_remove_request) X(queue_request) X(queue_retry_mode_request) \
    X(queue_retry_wait_request) X(queue_weight) X(result) X(server_info) X(server_message) \
    X(server_state) X(servers_request) X(servers_response) X(slot) X(start) X(stats_request) \
    X(stats_response) X(stop) X(sub_app) X(sub_app_info) X(sub_apps) X(take) X(taken) X(task) \
    X(timer) X(timer_app) X(timer_definition) X(timer_history_request) \
    X(timer_history_response) X(timer_keep_request) X(timer_keep_response) \
    X(timer_list_request) X(timer_list_response) X(timer_next_request) X(timer_next_response) \
    X(timer_operation) X(timer_request) X(timer_result) X(timer_send_request) \
    X(timer_send_response) X(timer_status_request) X(timer_status_response) X(token) \
    X(token_create_request) X(token_create_response) X(token_list_request) \
    X(token_list_response) X(token_revoke_request) X(topic_request) X(wait_request) X(wanted) \
    X(watch_request) X(welcome) X(why_reason) X(why_response) X(worker_message)
/* clang-format on */

#endif
