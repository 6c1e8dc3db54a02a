/* SPDX-License-Identifier: Apache-2.0 */
#include "job/json.h"

enum state {
    VALUE,       /* a value is expected */
    FIRST_VALUE, /* or the end of the array that has just begun */
    FIRST_KEY,   /* the name of a member, or the end of the object */
    KEY,
    COLON,
    AFTER, /* a value of an array or an object is over */
    STRING,
    ESCAPE,
    HEX,
    LITERAL,
    MINUS, /* the states of a number, by what was there last; in order from here */
    ZERO,
    DIGITS,
    POINT,
    FRACTION,
    E,
    E_SIGN,
    EXPONENT,
};

/* What one byte did. */
enum step {
    EATEN,
    AGAIN,       /* not eaten: a number was over before it, and it has another meaning now */
    LAST,        /* eaten, and the value ends with it */
    LAST_BEFORE, /* not eaten: the value was over before it */
    BAD,
};

static enum step bad(struct job_json *json, const char *fault)
{
    json->fault = fault;
    return BAD;
}

static enum step go(struct job_json *json, enum state state)
{
    json->state = (uint8_t)state;
    return EATEN;
}

/* ---- levels --------------------------------------------------------------------------------- */

static bool in_object(const struct job_json *json)
{
    uint32_t level = json->depth - 1;
    return json->objects[level / 64] >> level % 64 & 1;
}

static enum step open_level(struct job_json *json, bool object)
{
    if (json->depth == JOB_JSON_DEPTH_MAX)
        return bad(json, "nested too deep");
    uint64_t bit = 1ULL << json->depth % 64, *word = &json->objects[json->depth / 64];
    *word = object ? *word | bit : *word & ~bit;
    json->depth++;
    return go(json, object ? FIRST_KEY : FIRST_VALUE);
}

static enum step value_over(struct job_json *json)
{
    json->state = AFTER;
    return json->depth == 0 ? LAST : EATEN;
}

static enum step close_level(struct job_json *json)
{
    json->depth--;
    return value_over(json);
}

/* ---- values --------------------------------------------------------------------------------- */

static enum step begin_literal(struct job_json *json, const char *literal)
{
    json->literal = literal;
    json->more = 1;
    return go(json, LITERAL);
}

static enum step begin_string(struct job_json *json, bool key)
{
    json->key = key;
    json->utf8 = (struct job_utf8){0};
    return go(json, STRING);
}

static enum step begin_value(struct job_json *json, uint8_t c)
{
    switch (c) {
    case '"':
        return begin_string(json, false);
    case '{':
        return open_level(json, true);
    case '[':
        return open_level(json, false);
    case 't':
        return begin_literal(json, "true");
    case 'f':
        return begin_literal(json, "false");
    case 'n':
        return begin_literal(json, "null");
    case '-':
        return go(json, MINUS);
    case '0':
        return go(json, ZERO);
    default:
        return c >= '1' && c <= '9' ? go(json, DIGITS) : bad(json, "here a value must be");
    }
}

static enum step in_literal(struct job_json *json, uint8_t c)
{
    if (c != (uint8_t)json->literal[json->more])
        return bad(json, "neither true nor false nor null");
    json->more++;
    return json->literal[json->more] == '\0' ? value_over(json) : EATEN;
}

static enum step number_over(struct job_json *json)
{
    return value_over(json) == LAST ? LAST_BEFORE : AGAIN;
}

static enum step in_number(struct job_json *json, uint8_t c)
{
    enum state state = json->state;
    bool digit = c >= '0' && c <= '9';
    bool whole = state == ZERO || state == DIGITS;
    if (digit && state == MINUS)
        return go(json, c == '0' ? ZERO : DIGITS);
    if (digit && state == POINT)
        return go(json, FRACTION);
    if (digit && (state == E || state == E_SIGN))
        return go(json, EXPONENT);
    if (digit && state != ZERO)
        return EATEN;
    if (c == '.' && whole)
        return go(json, POINT);
    if ((c == 'e' || c == 'E') && (whole || state == FRACTION))
        return go(json, E);
    if ((c == '+' || c == '-') && state == E)
        return go(json, E_SIGN);
    if (whole || state == FRACTION || state == EXPONENT)
        return number_over(json);
    return bad(json, "a number goes on with a digit");
}

/* ---- strings -------------------------------------------------------------------------------- */

static enum step in_string(struct job_json *json, uint8_t c)
{
    if (json->utf8.left > 0)
        return job_utf8_next(&json->utf8, c) ? EATEN : bad(json, "not UTF-8");
    if (c == '"')
        return json->key ? go(json, COLON) : value_over(json);
    if (c == '\\')
        return go(json, ESCAPE);
    if (c < 0x20)
        return bad(json, "a control character in a string");
    return job_utf8_lead(&json->utf8, c) ? EATEN : bad(json, "not UTF-8");
}

static enum step in_escape(struct job_json *json, uint8_t c)
{
    if (json->state == ESCAPE && c == 'u') {
        json->more = 4;
        return go(json, HEX);
    }
    if (json->state == ESCAPE)
        return c != '\0' && strchr("\"\\/bfnrt", c) != NULL ? go(json, STRING)
                                                            : bad(json, "no such escape");
    bool hex = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    if (!hex)
        return bad(json, "\\u has four hexadecimal digits behind it");
    return --json->more == 0 ? go(json, STRING) : EATEN;
}

/* Bytes of a string that mean nothing special: nearly all there are. */
static size_t plain_run(const uint8_t *p, size_t len)
{
    size_t i = 0;
    while (i < len && p[i] >= 0x20 && p[i] < 0x80 && p[i] != '"' && p[i] != '\\')
        i++;
    return i;
}

/* ---- what stands between -------------------------------------------------------------------- */

static enum step in_between(struct job_json *json, uint8_t c)
{
    enum state state = json->state;
    if (job_json_is_space(c))
        return EATEN;
    if (state == VALUE || state == FIRST_VALUE)
        return c == ']' && state == FIRST_VALUE ? close_level(json) : begin_value(json, c);
    if (state == KEY || state == FIRST_KEY) {
        if (c == '}' && state == FIRST_KEY)
            return close_level(json);
        return c == '"' ? begin_string(json, true) : bad(json, "here a name in quotes must be");
    }
    if (state == COLON)
        return c == ':' ? go(json, VALUE) : bad(json, "here a colon must be");
    if (c == ',')
        return go(json, in_object(json) ? KEY : VALUE);
    if (c == (in_object(json) ? '}' : ']'))
        return close_level(json);
    return bad(json, in_object(json) ? "here a comma or } must be" : "here a comma or ] must be");
}

static enum step step(struct job_json *json, uint8_t c)
{
    switch ((enum state)json->state) {
    case STRING:
        return in_string(json, c);
    case ESCAPE:
    case HEX:
        return in_escape(json, c);
    case LITERAL:
        return in_literal(json, c);
    default:
        return json->state >= MINUS ? in_number(json, c) : in_between(json, c);
    }
}

/* ---- all of it ------------------------------------------------------------------------------ */

void job_json_begin(struct job_json *json)
{
    json->state = VALUE;
    json->depth = 0;
    json->fault = NULL;
}

enum job_json_verdict job_json_read(struct job_json *json, struct mr_slice bytes, size_t *ret_used)
{
    const uint8_t *p = bytes.data;
    size_t i = 0;
    while (i < bytes.len) {
        if (json->state == STRING && json->utf8.left == 0) {
            i += plain_run(p + i, bytes.len - i);
            if (i == bytes.len)
                break;
        }
        enum step done = step(json, p[i]);
        if (done == EATEN || done == LAST)
            i++;
        if (done == EATEN || done == AGAIN)
            continue;
        *ret_used = i;
        return done == BAD ? JOB_JSON_BAD : JOB_JSON_DONE;
    }
    *ret_used = bytes.len;
    return JOB_JSON_MORE;
}

/* Nothing comes any more. */
static enum job_json_verdict end(struct job_json *json)
{
    bool number = json->state == ZERO || json->state == DIGITS || json->state == FRACTION ||
                  json->state == EXPONENT;
    if (number && json->depth == 0)
        return JOB_JSON_DONE;
    json->fault = "it ends in the middle of a value";
    return JOB_JSON_BAD;
}

bool job_json_valid(struct mr_slice text)
{
    struct job_json json;
    size_t used;
    job_json_begin(&json);
    enum job_json_verdict verdict = job_json_read(&json, text, &used);
    if (verdict == JOB_JSON_MORE)
        verdict = end(&json);
    return verdict == JOB_JSON_DONE && used == text.len;
}
