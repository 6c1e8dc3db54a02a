/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that last. The library asks for bytes when the socket takes them; what there is to say is made then,
 * by more, and when there is nothing the connection is suspended until it is woken. So a client that reads
 * slowly, or not at all, has made nothing wait but itself, and what it misses is not piled up for it.
 */
#include <stdlib.h>

#include "http/internal.h"

enum { BLOCK_BYTES = 16 * 1024 };

struct mr_http_stream {
    struct mr_link link; /* in its server's */
    struct mr_http_request *request;
    const struct mr_http_stream_ops *ops;
    void *data;
    struct mr_buf buf; /* not taken yet, from at on */
    size_t at;
    bool suspended, ending, broken, making;
};

static void resume(struct mr_http_stream *stream)
{
    if (!stream->suspended)
        return;
    stream->suspended = false;
    connection_resume(stream->request->http, stream->request->connection);
}

static size_t left(const struct mr_http_stream *stream)
{
    return stream->buf.len - stream->at;
}

static void make_more(struct mr_http_stream *stream)
{
    mr_buf_done(&stream->buf); /* one that has nothing to say costs nothing */
    stream->buf = (struct mr_buf){0};
    stream->at = 0;
    stream->making = true;
    stream->ops->more(stream, stream->data);
    stream->making = false;
}

static ssize_t on_read(void *arg, uint64_t pos, char *to, size_t max)
{
    (void)pos;
    struct mr_http_stream *stream = arg;
    if (!stream->broken && left(stream) == 0 && !stream->ending)
        make_more(stream);
    if (stream->broken)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t n = left(stream) < max ? left(stream) : max;
    if (n > 0) {
        memcpy(to, stream->buf.data + stream->at, n);
        stream->at += n;
        return (ssize_t)n;
    }
    if (stream->ending)
        return MHD_CONTENT_READER_END_OF_STREAM;
    stream->suspended = true;
    MHD_suspend_connection(stream->request->connection);
    return 0;
}

static struct mr_http_stream *stream_new(struct mr_http_request *request,
                                         const struct mr_http_stream_ops *ops, void *data)
{
    struct mr_http_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->request = request;
    stream->ops = ops;
    stream->data = data;
    mr_list_init(&stream->link);
    return stream;
}

static void begin(struct mr_http_stream *stream)
{
    struct mr_http_request *request = stream->request;
    struct mr_http *http = request->http;
    struct client *client = client_of(request->connection);
    if (client)
        client_move(client, &http->streaming);
    if (http->streams_n++ == 0)
        http->ticked = mr_mono_now(mr_clock_system());
    mr_list_push_back(&http->streams, &stream->link);
    request->stream = stream;
}

struct mr_http_stream *mr_http_stream(struct mr_http_request *request, const char *type,
                                      const struct mr_http_stream_ops *ops, void *data)
{
    struct mr_http *http = request->http;
    if (http->streams_n >= http->options.limits.streams_max || http->stopping) {
        mr_http_fail(request, http->stopping ? MR_UNAVAILABLE : MR_BUSY,
                     http->stopping ? "the server is stopping" : "too many streams already");
        return NULL;
    }
    if (request->is_head) {
        mr_http_reply(request, 200, type, (struct mr_slice){0});
        return NULL;
    }
    struct mr_http_stream *stream = stream_new(request, ops, data);
    struct MHD_Response *response =
        stream ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, on_read, stream,
                                                   NULL)
               : NULL;
    bool good = response && response_head(response, type);
    request_queue(request, 200, good ? response : NULL);
    if (response)
        MHD_destroy_response(response);
    if (request->result != MHD_YES) {
        free(stream);
        return NULL;
    }
    begin(stream);
    return stream;
}

enum mr_err mr_http_stream_write(struct mr_http_stream *stream, struct mr_slice bytes)
{
    mr_assert(stream->making);
    return mr_buf_append_slice(&stream->buf, bytes);
}

void mr_http_stream_narrow(struct mr_http_stream *stream, size_t bytes)
{
    const struct client *client = client_of(stream->request->connection);
    if (client)
        mr_net_set_send_room(client->fd, bytes);
}

bool mr_http_stream_waits(const struct mr_http_stream *stream)
{
    return stream->suspended;
}

void mr_http_stream_wake(struct mr_http_stream *stream)
{
    resume(stream);
}

void mr_http_stream_end(struct mr_http_stream *stream)
{
    stream->ending = true;
    resume(stream);
}

void mr_http_stream_break(struct mr_http_stream *stream)
{
    stream->broken = true;
    resume(stream);
}

void streams_end(struct mr_http *http)
{
    for (struct mr_link *link = http->streams.next, *next; link != &http->streams; link = next) {
        next = link->next;
        mr_http_stream_break(mr_container(link, struct mr_http_stream, link));
    }
}

void stream_closed(struct mr_http_stream *stream)
{
    mr_list_remove(&stream->link);
    stream->request->http->streams_n--;
    stream->ops->closed(stream->data);
    mr_buf_done(&stream->buf);
    free(stream);
}
