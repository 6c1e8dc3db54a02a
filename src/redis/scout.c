/* SPDX-License-Identifier: Apache-2.0 */
/* One timer serves both states of an open line: asked (it fires when the answer is late), and answered
 * (it fires to ask again). A line that is not open tries host after host with its own pauses. */
#include "redis/scout.h"

enum { LOOK_MS = 50 }; /* between an answer and the next question, at least */

static struct redis_scout *scout_of(struct redis_line *line)
{
    return mr_container(line, struct redis_scout, line);
}

static void start_timer(struct redis_scout *scout, int64_t ms)
{
    struct mr_redis *redis = scout->line.redis;
    mr_redis_timer_start(redis, &scout->timer, mr_mono_add_ms(redis->now, ms));
}

static const struct redis_host *next_host(struct redis_scout *scout)
{
    scout->at = (scout->at + 1) % scout->hosts_n;
    return &scout->hosts[scout->at];
}

static void ask(struct redis_scout *scout)
{
    struct redis_line *line = &scout->line;
    enum mr_err err = scout->ops->ask(scout);
    scout->asked = true;
    scout->again = scout->elsewhere = false;
    start_timer(scout, line->redis->options.answer_ms);
    if (err != MR_OK)
        redis_line_doom(line, err, "no question could be asked");
}

static void fire(struct mr_timer *timer, void *arg)
{
    (void)arg;
    struct redis_scout *scout = mr_container(timer, struct redis_scout, timer);
    if (!redis_line_is_open(&scout->line))
        return;
    if (scout->asked)
        redis_line_doom(&scout->line, MR_UNAVAILABLE, "no answer in time");
    else if (scout->elsewhere && scout->hosts_n > 1)
        redis_line_aim(&scout->line, next_host(scout));
    else
        ask(scout);
}

void redis_scout_opened(struct redis_line *line)
{
    ask(scout_of(line));
}

void redis_scout_lost(struct redis_line *line)
{
    struct redis_scout *scout = scout_of(line);
    scout->asked = false;
    mr_redis_timer_stop(line->redis, &scout->timer);
    if (line->aimed)
        return; /* it is on its way to the next one */
    line->host = *next_host(scout);
    if (scout->ops->failed != NULL)
        scout->ops->failed(scout);
}

void redis_scout_heard(struct redis_line *line, const struct mr_reply *reply)
{
    struct redis_scout *scout = scout_of(line);
    scout->ops->heard(scout, reply);
}

void redis_scout_retired(struct redis_line *line)
{
    struct redis_scout *scout = scout_of(line);
    scout->ops->stopped(scout);
}

enum mr_err redis_scout_start(struct redis_scout *scout, struct mr_redis *redis,
                              const struct redis_scout_ops *ops)
{
    const struct redis_url *url = &redis->url;
    mr_assert(url->hosts_n > 0 && url->hosts_n <= REDIS_HOSTS_MAX);
    memcpy(scout->hosts, url->hosts, url->hosts_n * sizeof url->hosts[0]);
    scout->hosts_n = url->hosts_n;
    scout->ops = ops;
    mr_timer_init(&scout->timer, fire);
    redis_line_init(&scout->line, redis, &ops->line, scout);
    /* Not everybody begins with the first one. */
    scout->at = mr_rand_below(&redis->rand, scout->hosts_n);
    redis_line_aim(&scout->line, &scout->hosts[scout->at]);
    return MR_OK;
}

void redis_scout_stop(struct redis_scout *scout)
{
    mr_redis_timer_stop(scout->line.redis, &scout->timer);
    redis_line_retire(&scout->line, MR_CLOSED);
}

void redis_scout_learn(struct redis_scout *scout, const struct redis_host *host)
{
    for (size_t i = 0; i < scout->hosts_n; i++)
        if (redis_host_equal(&scout->hosts[i], host))
            return;
    if (scout->hosts_n < REDIS_HOSTS_MAX)
        scout->hosts[scout->hosts_n++] = *host;
}

void redis_scout_look(struct redis_scout *scout, enum redis_where where)
{
    struct redis_line *line = &scout->line;
    scout->again = true;
    scout->elsewhere = scout->elsewhere || where == REDIS_ELSEWHERE;
    /* Else the answer comes, or the line opens, and both see to it. */
    if (!redis_line_is_open(line) || scout->asked || mr_timer_running(&scout->timer))
        return;
    int64_t since_ms = (line->redis->now.ns - scout->answered_at.ns) / MR_NS_PER_MS;
    start_timer(scout, since_ms < LOOK_MS ? LOOK_MS - since_ms : 0);
}

void redis_scout_answered(struct redis_scout *scout)
{
    mr_redis_timer_stop(scout->line.redis, &scout->timer);
    scout->asked = false;
    scout->answered_at = scout->line.redis->now;
    if (scout->again)
        start_timer(scout, LOOK_MS);
}
