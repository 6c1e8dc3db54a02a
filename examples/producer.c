/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer: hands over three tasks and knows that they are on disk when it is told so.
 *
 *   cc producer.c $(pkg-config --cflags --libs millrace) && ./a.out file:data
 */
#include <millrace.h>

static int give_up(const char *what, enum mr_err err, const char *more)
{
    fprintf(stderr, "%s: %s%s%s\n", what, mr_err_text(err), *more ? ": " : "", more);
    return mr_err_exit_code(err);
}

int main(int argc, char **argv)
{
    struct mr_client *client;
    struct mr_detail detail = {0};
    enum mr_err err = mr_client_open(argc > 1 ? argv[1] : "file:data", NULL, &client, &detail);
    if (err != MR_OK)
        return give_up("open", err, detail.text);

    const struct mr_header trace = {mr_slice_str("trace-id"), mr_slice_str("4711")};
    const struct mr_task_options tasks[] = {
        /* Usually a type and a payload are all there is to say. */
        {.type = mr_slice_str("mail:welcome"), .payload = mr_slice_str("{\"user\":1}")},
        /* Not before a minute from now, twice at most, and ahead of others when it is due. */
        {.type = mr_slice_str("mail:reminder"),
         .payload = mr_slice_str("{\"user\":1}"),
         .delay_ms = 60 * 1000,
         .max_retry = 1,
         .priority_s = 30},
        /* An id of our own: to enqueue it again is a conflict, not a second mail. */
        {.id = mr_slice_str("invoice-2024-07"),
         .queue = mr_slice_str("slow"),
         .type = mr_slice_str("invoice"),
         .headers = &trace,
         .headers_n = 1},
    };
    enum { N = sizeof tasks / sizeof *tasks };
    struct mr_enqueue_result results[N];
    err = mr_enqueue(client, tasks, N, results);
    for (size_t i = 0; err == MR_OK && i < N; i++) {
        if (results[i].err == MR_OK)
            printf("%s is %s\n", results[i].id, mr_state_name(results[i].state));
        else
            printf("task %zu was refused: %s\n", i, mr_err_text(results[i].err));
    }
    mr_client_close(client);
    return err == MR_OK ? 0 : give_up("enqueue", err, "");
}
