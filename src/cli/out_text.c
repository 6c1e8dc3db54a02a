/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes of strangers on a terminal: nothing they contain may move the cursor, change colours or
 * turn the direction of text. What is not plain is shown as an escape.
 */
#include <wchar.h>

#include "cli/cli.h"
#include "cli/out.h"

/* Decodes one character; 0 bytes when the text there is not UTF-8. */
static size_t decode(const uint8_t *p, size_t len, uint32_t *ret_char)
{
    static const struct {
        uint8_t mask, lead;
        uint32_t min;
    } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
    for (size_t n = 1; n <= CLI_LEN(forms); n++) {
        if ((p[0] & forms[n - 1].mask) != forms[n - 1].lead)
            continue;
        if (len < n)
            return 0;
        uint32_t c = p[0] & (uint8_t)~forms[n - 1].mask;
        for (size_t i = 1; i < n; i++) {
            if ((p[i] & 0xc0) != 0x80)
                return 0;
            c = c << 6 | (p[i] & 0x3f);
        }
        if (c < forms[n - 1].min || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
            return 0;
        *ret_char = c;
        return n;
    }
    return 0;
}

/* Characters that act on the terminal or on the text around them instead of showing themselves. */
static bool acts(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200b, 0x200f},
        {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
    };
    for (size_t i = 0; i < CLI_LEN(ranges); i++)
        if (c >= ranges[i].first && c <= ranges[i].last)
            return true;
    return false;
}

static void escape_char(struct mr_buf *buf, uint32_t c)
{
    static const char letters[][2] = {{'\n', 'n'}, {'\t', 't'}, {'\r', 'r'}};
    for (size_t i = 0; i < CLI_LEN(letters); i++) {
        if (c == (uint8_t)letters[i][0]) {
            cli_must(mr_buf_printf(buf, "\\%c", letters[i][1]));
            return;
        }
    }
    cli_must(c < 0x80 ? mr_buf_printf(buf, "\\x%02x", (unsigned)c)
                      : mr_buf_printf(buf, "\\u{%x}", (unsigned)c));
}

void out_escape(struct mr_buf *buf, struct mr_slice bytes)
{
    const uint8_t *p = bytes.data;
    for (size_t i = 0; i < bytes.len;) {
        uint32_t c = 0;
        size_t n = decode(p + i, bytes.len - i, &c);
        if (n == 0) {
            cli_must(mr_buf_printf(buf, "\\x%02x", p[i]));
            n = 1;
        } else if (acts(c)) {
            escape_char(buf, c);
        } else {
            cli_must(mr_buf_append(buf, p + i, n));
        }
        i += n;
    }
}

const char *out_escaped(struct mr_buf *scratch, struct mr_slice bytes)
{
    mr_buf_clear(scratch);
    out_escape(scratch, bytes);
    cli_must(mr_buf_append(scratch, "", 1));
    return (const char *)scratch->data;
}

size_t out_width(struct mr_slice text)
{
    size_t width = 0;
    const uint8_t *p = text.data;
    for (size_t i = 0; i < text.len;) {
        uint32_t c = 0;
        size_t n = decode(p + i, text.len - i, &c);
        int columns = n == 0 ? 1 : wcwidth((wchar_t)c);
        width += columns > 0 ? (size_t)columns : 0;
        i += n ? n : 1;
    }
    return width;
}
