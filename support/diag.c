/* Collecting and printing diagnostics.
 *
 * The printed source line is cut to a window around the caret, so that a line
 * of megabytes does not reach the terminal; control bytes show as spaces.
 */
#include "support/diag.h"

#include <ctype.h>
#include <string.h>

#include "support/utf8.h"
#include "support/vec.h"

enum { WINDOW_BYTES = 160, WINDOW_BEFORE = 60 };

struct diag_sink {
    struct arena *arena;        /* borrowed */
    struct source_set *sources; /* borrowed */
    struct diag *first, *last;  /* without notes */
    struct diag *last_note;     /* of `last` */
    size_t errors, warnings;
    bool dropping; /* the latest message was silenced or over the limit */
    bool overflow; /* an error over the limit was dropped */
    VEC(const char *) silenced;
};

struct diag_sink *diag_sink_create(struct arena *arena,
                                   struct source_set *sources) {
    struct diag_sink *sink = ARENA_NEW(arena, struct diag_sink);
    sink->arena = arena;
    sink->sources = sources;
    return sink;
}

void diag_silence(struct diag_sink *sink, const char *warning) {
    vec_push(sink->arena, &sink->silenced, arena_strdup(sink->arena, warning));
}

static struct diag *append(struct diag_sink *sink, enum diag_severity severity,
                           struct source_range where, const char *message) {
    struct diag *diag = ARENA_NEW(sink->arena, struct diag);
    *diag =
        (struct diag){.severity = severity, .where = where, .message = message};
    if (sink->last)
        sink->last->next = diag;
    else
        sink->first = diag;
    sink->last = diag;
    sink->last_note = NULL;
    return diag;
}

void diag_verror(struct diag_sink *sink, struct source_range where,
                 const char *format, va_list args) {
    sink->dropping = diag_is_full(sink);
    if (sink->dropping) {
        sink->overflow = true;
        return;
    }
    append(sink, DIAG_ERROR, where, arena_vprintf(sink->arena, format, args));
    sink->errors++;
}

void diag_error(struct diag_sink *sink, struct source_range where,
                const char *format, ...) {
    va_list args;
    va_start(args, format);
    diag_verror(sink, where, format, args);
    va_end(args);
}

void diag_warning(struct diag_sink *sink, struct source_range where,
                  const char *warning, const char *format, ...) {
    sink->dropping = diag_is_full(sink);
    for (size_t i = 0; i < sink->silenced.count; i++)
        if (strcmp(sink->silenced.data[i], warning) == 0)
            sink->dropping = true;
    if (sink->dropping)
        return;
    va_list args;
    va_start(args, format);
    struct diag *diag = append(sink, DIAG_WARNING, where,
                               arena_vprintf(sink->arena, format, args));
    va_end(args);
    diag->warning = warning;
    sink->warnings++;
}

void diag_note(struct diag_sink *sink, struct source_range where,
               const char *format, ...) {
    if (sink->dropping || !sink->last)
        return;
    va_list args;
    va_start(args, format);
    struct diag *note = ARENA_NEW(sink->arena, struct diag);
    *note = (struct diag){.severity = DIAG_NOTE,
                          .where = where,
                          .message = arena_vprintf(sink->arena, format, args)};
    va_end(args);
    if (sink->last_note)
        sink->last_note->next = note;
    else
        sink->last->notes = note;
    sink->last_note = note;
}

size_t diag_error_count(const struct diag_sink *sink) {
    return sink->errors;
}

size_t diag_warning_count(const struct diag_sink *sink) {
    return sink->warnings;
}

bool diag_is_full(const struct diag_sink *sink) {
    return sink->errors >= DIAG_MAX_ERRORS;
}

const struct diag *diag_first(const struct diag_sink *sink) {
    return sink->first;
}

struct source_set *diag_sources(const struct diag_sink *sink) {
    return sink->sources;
}

/* ---- printing ------------------------------------------------------------ */

static const char *colour_of(enum diag_severity severity) {
    switch (severity) {
    case DIAG_ERROR:
        return "\033[1;31m";
    case DIAG_WARNING:
        return "\033[1;35m";
    case DIAG_NOTE:
        return "\033[1;36m";
    }
    return "";
}

static const char *word_of(enum diag_severity severity) {
    switch (severity) {
    case DIAG_ERROR:
        return "error";
    case DIAG_WARNING:
        return "warning";
    case DIAG_NOTE:
        return "note";
    }
    return "";
}

static bool is_continuation(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

/* The part of a source line that is shown: bytes [begin, end). */
struct window {
    const char *line;
    size_t length; /* of the whole line */
    size_t begin, end;
};

static struct window window_around(const char *line, size_t length,
                                   size_t caret) {
    struct window w = {line, length, 0, length};
    if (length <= WINDOW_BYTES)
        return w;
    w.begin = caret > WINDOW_BEFORE ? caret - WINDOW_BEFORE : 0;
    if (length - w.begin < WINDOW_BYTES)
        w.begin = length - WINDOW_BYTES;
    w.end = w.begin + WINDOW_BYTES;
    while (w.begin > 0 && is_continuation(line[w.begin]))
        w.begin--;
    while (w.end < length && is_continuation(line[w.end]))
        w.end++;
    return w;
}

/* The bytes of the window; what is neither printable nor UTF-8 as a space. */
static void render_text(struct strbuf *out, const struct window *w) {
    if (w->begin > 0)
        strbuf_append(out, "...");
    for (size_t i = w->begin; i < w->end;) {
        size_t bytes = utf8_sequence(w->line + i, w->length - i);
        unsigned char c = (unsigned char)w->line[i];
        if (bytes == 0 || (c < 0x20 && c != '\t') || c == 0x7f)
            strbuf_append_char(out, ' ');
        else
            strbuf_append_bytes(out, w->line + i, bytes);
        i += bytes ? bytes : 1;
    }
    strbuf_append(out, w->end < w->length ? "...\n" : "\n");
}

/* Spaces (or the line's tabs) up to `caret`, then ^~~~ up to `end`. */
static void render_caret(struct strbuf *out, const struct window *w,
                         size_t caret, size_t end) {
    if (w->begin > 0)
        strbuf_append(out, "   ");
    for (size_t i = w->begin; i < caret;) {
        size_t bytes =
            i < w->length ? utf8_sequence(w->line + i, w->length - i) : 1;
        strbuf_append_char(out,
                           i < w->length && w->line[i] == '\t' ? '\t' : ' ');
        i += bytes ? bytes : 1;
    }
    strbuf_append_char(out, '^');
    for (size_t i = caret + 1; i < end && i < w->end; i++)
        if (utf8_sequence(w->line + i, w->length - i) ||
            !is_continuation(w->line[i]))
            strbuf_append_char(out, '~');
}

/* The line and its caret; a range over several lines is marked to the end of
 * the first. */
static void render_source(struct strbuf *out, const struct source_place *place,
                          enum diag_severity severity, bool colour) {
    size_t length;
    const char *line = source_line(place->file, place->line, &length);
    size_t caret = place->column - 1;
    size_t end =
        place->end_line == place->line ? place->end_column - 1 : length;
    if (length == 0)
        return; /* the end of the file: nothing to point at */
    struct window w = window_around(line, length, caret);
    render_text(out, &w);
    if (colour)
        strbuf_append(out, colour_of(severity));
    render_caret(out, &w, caret, end);
    strbuf_append(out, colour ? "\033[0m\n" : "\n");
}

/* Place, severity, message, warning name; then the source. */
static void render_one(const struct diag_sink *sink, const struct diag *diag,
                       bool colour, struct strbuf *out) {
    struct source_place place = source_locate(sink->sources, diag->where);
    const char *bold = colour ? "\033[1m" : "",
               *reset = colour ? "\033[0m" : "";
    if (place.file)
        strbuf_printf(out, "%s%s:%u:%u: ", bold, place.file->path, place.line,
                      place.column);
    else
        strbuf_printf(out, "%sattnc: ", bold);
    strbuf_printf(out, "%s%s:%s%s %s", colour ? colour_of(diag->severity) : "",
                  word_of(diag->severity), reset, bold, diag->message);
    if (diag->warning)
        strbuf_printf(out, " [%s]", diag->warning);
    strbuf_printf(out, "%s\n", reset);
    if (place.file)
        render_source(out, &place, diag->severity, colour);
}

void diag_render(const struct diag_sink *sink, bool colour,
                 struct strbuf *out) {
    for (const struct diag *diag = sink->first; diag; diag = diag->next) {
        render_one(sink, diag, colour, out);
        for (const struct diag *note = diag->notes; note; note = note->next)
            render_one(sink, note, colour, out);
    }
    if (sink->overflow)
        strbuf_printf(out,
                      "attnc: error: too many errors (%d), stopping here\n",
                      DIAG_MAX_ERRORS);
}

void diag_print(const struct diag_sink *sink, bool colour, FILE *stream) {
    struct strbuf out;
    strbuf_init(&out, NULL);
    diag_render(sink, colour, &out);
    fwrite(strbuf_text(&out), 1, out.length, stream);
    strbuf_destroy(&out);
}

/* ---- names --------------------------------------------------------------- */

const char *diag_name(struct diag_sink *sink, const char *name) {
    struct strbuf out;
    strbuf_init(&out, sink->arena);
    size_t length = strlen(name);
    for (size_t i = 0; i < length;) {
        size_t bytes = utf8_sequence(name + i, length - i);
        if (i + bytes > DIAG_NAME_BYTES) {
            strbuf_append(&out, "...");
            break;
        }
        unsigned char c = (unsigned char)name[i];
        if (bytes == 0 || c < 0x20 || c == 0x7f)
            strbuf_append_char(&out, '?');
        else
            strbuf_append_bytes(&out, name + i, bytes);
        i += bytes ? bytes : 1;
    }
    return strbuf_text(&out);
}

enum { SPELL_MAX = 64, SPELL_EDIT = 2, SPELL_CASE = 1 };

static int min3(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

static int replace_cost(char a, char b) {
    if (a == b)
        return 0;
    return tolower((unsigned char)a) == tolower((unsigned char)b) ? SPELL_CASE
                                                                  : SPELL_EDIT;
}

/* Optimal string alignment distance, an edit costs SPELL_EDIT. */
static int distance(const char *a, size_t m, const char *b, size_t n) {
    int rows[3][SPELL_MAX + 1];
    for (size_t j = 0; j <= n; j++)
        rows[0][j] = (int)j * SPELL_EDIT;
    for (size_t i = 1; i <= m; i++) {
        int *now = rows[i % 3], *before = rows[(i + 2) % 3],
            *earlier = rows[(i + 1) % 3];
        now[0] = (int)i * SPELL_EDIT;
        for (size_t j = 1; j <= n; j++) {
            now[j] = min3(before[j] + SPELL_EDIT, now[j - 1] + SPELL_EDIT,
                          before[j - 1] + replace_cost(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] &&
                a[i - 2] == b[j - 1] && earlier[j - 2] + SPELL_EDIT < now[j])
                now[j] = earlier[j - 2] + SPELL_EDIT;
        }
    }
    return rows[m % 3][n];
}

const char *diag_closest(const char *word, const char *const *candidates,
                         size_t count) {
    size_t length = strlen(word);
    if (length == 0 || length > SPELL_MAX)
        return NULL;
    const char *best = NULL;
    int best_cost = (int)(length < 3 ? 1 : (length + 1) / 3) * SPELL_EDIT + 1;
    for (size_t i = 0; i < count; i++) {
        if (!candidates[i] || strlen(candidates[i]) > SPELL_MAX)
            continue;
        int cost = distance(word, length, candidates[i], strlen(candidates[i]));
        if (cost < best_cost && cost < (int)length * SPELL_EDIT) {
            best_cost = cost;
            best = candidates[i];
        }
    }
    return best;
}
