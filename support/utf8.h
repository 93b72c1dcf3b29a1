/* UTF-8 validation, one sequence at a time. */
#ifndef ATTN_SUPPORT_UTF8_H
#define ATTN_SUPPORT_UTF8_H

#include <stddef.h>

/* Bytes of the valid sequence (1 to 4) at `text`, 0 when it is malformed:
 * truncated, overlong, a surrogate, or above U+10FFFF.  `length` > 0. */
static inline size_t utf8_sequence(const char *text, size_t length) {
    const unsigned char *s = (const unsigned char *)text;
    if (s[0] < 0x80)
        return 1;
    size_t bytes = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4 || length < bytes)
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return bytes;
}

#endif
