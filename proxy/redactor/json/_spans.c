/* Places of the values of one JSON object, found and validated in a single pass; the words of tokens;
 * whether values stand in a text.
 *
 * Optional twins of Python code, which is their oracle. "find" is that of FastSelector.brief
 * (proxy/redactor/select.py). It accepts only what is JSON beyond doubt (RFC 8259, strict UTF-8,
 * escapes that are whole characters) and gives None for everything else: the Python code then
 * decides, and tells of faults. "cut" is that of BodyCutter (proxy/redactor/guard.py), "answer_fields" and
 * "put_back" those of the fast path (proxy/redactor/exchange/fast_path_exchange.py), "tokens" and "unchanged" those of
 * FastPathPlan._tokens and _next (fast_path_plan.py beside it). "write62" and
 * "write32" are those of proxy/tokenization/common.py;
 * "absent" that of suspects (proxy/redactor/value_scan.py), which decides where it is in doubt.
 *
 * Nothing is allocated and no Python object touched while a text is read, so that the interpreter's
 * lock is released meanwhile for a long one. The text of a bytes object ends with a zero byte, which
 * no JSON text holds: it stops every loop that looks at one byte after the other. */

#define _GNU_SOURCE /* memmem */
#define Py_LIMITED_API 0x030b0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#ifndef SOURCE_DIGEST
#define SOURCE_DIGEST ""
#endif

enum { MEMBERS = 128, LEVELS = 1024, SHORT_TEXT = 16 * 1024, LONG_TEXT = 32 * 1024 };

typedef unsigned char byte;
typedef struct { const byte *name, *name_end, *start, *end; } member;

static const byte *space(const byte *at)
{
    while (*at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

static int unit(const byte *at) /* the UTF-16 code unit of an escape behind its \; -1: it is none */
{
    int value = 0;
    if (*at != 'u')
        return -1;
    for (int digit = 1; digit <= 4; digit++) {
        byte c = at[digit];
        if (c >= '0' && c <= '9')
            value = value * 16 + c - '0';
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            value = value * 16 + (c | 32) - 'a' + 10;
        else
            return -1;
    }
    return value;
}

static const byte *escape(const byte *at) /* the end of an escape that begins there */
{
    byte kind = at[1];
    if (kind == '"' || kind == '\\' || kind == '/' || kind == 'b' || kind == 'f' || kind == 'n' ||
        kind == 'r' || kind == 't')
        return at + 2;
    int first = unit(at + 1);
    if (first < 0 || (first & 0xFC00) == 0xDC00)
        return NULL;
    if ((first & 0xFC00) != 0xD800)
        return at + 6;
    return at[6] == '\\' && (unit(at + 7) & ~0x3FF) == 0xDC00 ? at + 12 : NULL;
}

static int follows(const byte *at, int least, int most) /* two limits for the byte behind the first */
{
    return at[1] >= least && at[1] <= most;
}

static const byte *character(const byte *at) /* the end of a character of several bytes (RFC 3629) */
{
    byte lead = *at;
    if (lead >= 0xC2 && lead <= 0xDF)
        return follows(at, 0x80, 0xBF) ? at + 2 : NULL;
    if (lead >= 0xE0 && lead <= 0xEF) {
        if (!follows(at, lead == 0xE0 ? 0xA0 : 0x80, lead == 0xED ? 0x9F : 0xBF))
            return NULL;
        return follows(at + 1, 0x80, 0xBF) ? at + 3 : NULL;
    }
    if (lead < 0xF0 || lead > 0xF4 ||
        !follows(at, lead == 0xF0 ? 0x90 : 0x80, lead == 0xF4 ? 0x8F : 0xBF))
        return NULL;
    return follows(at + 1, 0x80, 0xBF) && follows(at + 2, 0x80, 0xBF) ? at + 4 : NULL;
}

/* Sixteen bytes at once where the processor has SSE2, as each of x86-64 has, else eight. */
#if defined(__SSE2__)
#define AT_ONCE 16
static unsigned odd(const byte *at) /* which are a quote, a backslash, below a space or not ASCII */
{
    __m128i text = _mm_loadu_si128((const __m128i *)at); /* as signed numbers: what is not ASCII is below */
    __m128i marks = _mm_or_si128(_mm_cmpeq_epi8(text, _mm_set1_epi8('"')), _mm_cmpeq_epi8(text, _mm_set1_epi8('\\')));
    return (unsigned)_mm_movemask_epi8(_mm_or_si128(marks, _mm_cmplt_epi8(text, _mm_set1_epi8(' '))));
}
#define FIRST(which) __builtin_ctz(which)
#else
#define AT_ONCE 8
#define EACH(number) (UINT64_C(0x0101010101010101) * (number))
/* 0x80 where a byte is below a number up to 0x80, at least up to the lowest such place */
#define BELOW(word, number) (((word) - EACH(number)) & ~(word) & EACH(0x80))
static uint64_t odd(const byte *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return BELOW(word ^ EACH('"'), 1) | BELOW(word ^ EACH('\\'), 1) | BELOW(word, 0x20) | (word & EACH(0x80));
}
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FIRST(which) (__builtin_ctzll(which) >> 3)
#else
#define FIRST(which) 0
#endif
#endif

static const byte *string(const byte *at, const byte *end) /* behind its last quote; from the first */
{
    at++;
    while (at != NULL) {
        while (end - at >= AT_ONCE) {
            __typeof__(odd(at)) which = odd(at);
            if (which) {
                at += FIRST(which);
                if (*at == '"')
                    return at + 1;
                break;
            }
            at += AT_ONCE;
        }
        while (*at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\')
            at++;
        if (*at == '"')
            return at + 1;
        at = *at == '\\' ? escape(at) : *at >= 0x80 ? character(at) : NULL;
    }
    return NULL;
}

static const byte *digits(const byte *at) /* the end of one digit or more */
{
    if (*at < '0' || *at > '9')
        return NULL;
    while (*at >= '0' && *at <= '9')
        at++;
    return at;
}

static const byte *scalar(const byte *at) /* the end of a number, true, false or null */
{
    if (*at == 't')
        return at[1] == 'r' && at[2] == 'u' && at[3] == 'e' ? at + 4 : NULL;
    if (*at == 'f')
        return at[1] == 'a' && at[2] == 'l' && at[3] == 's' && at[4] == 'e' ? at + 5 : NULL;
    if (*at == 'n')
        return at[1] == 'u' && at[2] == 'l' && at[3] == 'l' ? at + 4 : NULL;
    at += *at == '-';
    at = *at == '0' ? at + 1 : digits(at);
    if (at != NULL && *at == '.')
        at = digits(at + 1);
    if (at != NULL && (*at | 32) == 'e')
        at = digits(at + 1 + (at[1] == '+' || at[1] == '-'));
    return at;
}

static const byte *name(const byte *at, const byte *end) /* the value behind a name and its colon */
{
    at = *at == '"' ? string(at, end) : NULL;
    if (at == NULL || *(at = space(at)) != ':')
        return NULL;
    return space(at + 1);
}

static const byte *value(const byte *at, const byte *end, int levels) /* the end of any value */
{
    uint64_t objects[LEVELS / 64]; /* one bit for each open level: whether it is an object */
    int level = 0;
    while (at != NULL) {
        byte kind = *at;
        if (kind == '{' || kind == '[') {
            if (level == levels)
                return NULL;
            uint64_t bit = UINT64_C(1) << (level & 63);
            objects[level >> 6] = (level & 63 ? objects[level >> 6] & ~bit : 0) | (kind == '{' ? bit : 0);
            level++;
            at = space(at + 1);
            if (*at != kind + 2) { /* its closing bracket */
                at = kind == '{' ? name(at, end) : at;
                continue;
            }
        } else {
            at = kind == '"' ? string(at, end) : scalar(at);
            if (at == NULL || level == 0)
                return at;
            at = space(at);
        }
        for (;;) { /* behind a value, or at the closing bracket of an empty level */
            int object = objects[(level - 1) >> 6] >> ((level - 1) & 63) & 1;
            if (*at == ',') {
                at = space(at + 1);
                at = object ? name(at, end) : at;
                break;
            }
            if (*at != (object ? '}' : ']'))
                return NULL;
            at++;
            if (--level == 0)
                return at;
            at = space(at);
        }
    }
    return NULL;
}

static int members_of(const byte *at, const byte *end, int levels, member *found) /* -1: in doubt */
{
    int count = 0;
    if (*at != '{' || levels < 1)
        return -1;
    at = space(at + 1);
    if (*at == '}')
        return at + 1 == end ? 0 : -1;
    for (;; at = space(at + 1)) {
        if (count == MEMBERS)
            return -1;
        member *one = &found[count++];
        one->name = at + 1;
        one->start = name(at, end);
        if (one->start == NULL)
            return -1;
        one->name_end = memchr(one->name, '"', one->start - one->name);
        if (memchr(one->name, '\\', one->name_end - one->name) != NULL)
            return -1; /* it has other spellings */
        one->end = value(one->start, end, levels - 1);
        if (one->end == NULL)
            return -1;
        at = space(one->end);
        if (*at == '}')
            return at + 1 == end ? count : -1;
        if (*at != ',')
            return -1;
    }
}

static PyObject *names_of(const member *found, int count)
{
    PyObject *names = PyTuple_New(count);
    for (int at = 0; names != NULL && at < count; at++) {
        const member *one = &found[at];
        PyObject *text = PyUnicode_FromStringAndSize((const char *)one->name, one->name_end - one->name);
        if (text == NULL || PyTuple_SetItem(names, at, text) < 0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *place(PyObject *name, Py_ssize_t start, Py_ssize_t end) /* behind a name, where there is one */
{
    int first = name != NULL;
    PyObject *tuple = PyTuple_New(2 + first);
    Py_XINCREF(name);
    if (tuple != NULL && ((first && PyTuple_SetItem(tuple, 0, name) < 0) ||
                          PyTuple_SetItem(tuple, first, PyLong_FromSsize_t(start)) < 0 ||
                          PyTuple_SetItem(tuple, first + 1, PyLong_FromSsize_t(end)) < 0 || PyErr_Occurred()))
        Py_CLEAR(tuple);
    return tuple;
}

static int place_of(PyObject *pair, Py_ssize_t *span) /* its last two numbers; 0: an error */
{
    Py_ssize_t size = pair != NULL && PyTuple_Check(pair) ? PyTuple_Size(pair) : 0;
    if (size < 2) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a place is two numbers");
        return 0;
    }
    span[0] = PyLong_AsSsize_t(PyTuple_GetItem(pair, size - 2));
    span[1] = PyLong_AsSsize_t(PyTuple_GetItem(pair, size - 1));
    return (span[0] != -1 && span[1] != -1) || !PyErr_Occurred();
}

/* The whole text, and the values of the members with these numbers, as pairs of offsets. */
static PyObject *spans_of(const byte *text, Py_ssize_t size, PyObject *numbers, const member *found, int count)
{
    Py_ssize_t chosen = PyTuple_Size(numbers);
    PyObject *spans = chosen < 0 ? NULL : PyList_New(chosen + 1);
    for (Py_ssize_t at = 0; spans != NULL && at <= chosen; at++) {
        Py_ssize_t start = 0, end = size;
        if (at > 0) {
            Py_ssize_t number = PyLong_AsSsize_t(PyTuple_GetItem(numbers, at - 1));
            if (number < 0 || number >= count) {
                if (!PyErr_Occurred())
                    PyErr_SetString(PyExc_IndexError, "no such member");
                Py_CLEAR(spans);
                break;
            }
            start = found[number].start - text;
            end = found[number].end - text;
        }
        PyObject *pair = place(NULL, start, end);
        if (pair == NULL || PyList_SetItem(spans, at, pair) < 0)
            Py_CLEAR(spans);
    }
    return spans;
}

static PyObject *find(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    char *text;
    Py_ssize_t size;
    member found[MEMBERS];
    int count;
    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "find takes a text, a depth and layouts");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[0], &text, &size) < 0)
        return NULL;
    long depth = PyLong_AsLong(arguments[1]);
    if (depth == -1 && PyErr_Occurred())
        return NULL;
    int levels = depth > LEVELS ? LEVELS : depth < 0 ? 0 : (int)depth;
    const byte *start = (const byte *)text, *end = start + size;
    if (size > LONG_TEXT) {
        Py_BEGIN_ALLOW_THREADS
        count = members_of(start, end, levels, found);
        Py_END_ALLOW_THREADS
    } else
        count = members_of(start, end, levels, found);
    if (count < 0)
        Py_RETURN_NONE;
    PyObject *names = names_of(found, count);
    PyObject *layout = names == NULL ? NULL : PyObject_GetItem(arguments[2], names);
    Py_XDECREF(names);
    if (layout == NULL || layout == Py_None)
        return layout;
    PyObject *result = NULL;
    if (PyTuple_Size(layout) == 2) {
        PyObject *spans = spans_of(start, size, PyTuple_GetItem(layout, 1), found, count);
        if (spans != NULL)
            result = PyTuple_Pack(2, PyTuple_GetItem(layout, 0), spans);
        Py_XDECREF(spans);
    } else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_TypeError, "a layout has two parts");
    Py_DECREF(layout);
    return result;
}

/* ---------------------------------------------------------------- texts, cut out of a body */

static int append(PyObject *list, PyObject *item) /* which is not the caller's any more; 0: an error */
{
    int done = item != NULL && PyList_Append(list, item) == 0;
    Py_XDECREF(item);
    return done;
}

/* "view": of a long body, whose pieces are not copied. */
typedef struct { PyObject *texts, *fields, *raws, *pieces, *view; } parts;

static PyObject *piece_of(const parts *of, const char *body, Py_ssize_t start, Py_ssize_t end)
{
    return of->view != NULL ? PySequence_GetSlice(of->view, start, end) : PyBytes_FromStringAndSize(body + start, end - start);
}

/* One more leaf; "reached" is where the one before ends. 1: it was cut out; 0: it is no plain text; -1: an error. */
static int cut_one(const char *body, Py_ssize_t *reached, const Py_ssize_t *span, PyObject *name, int empties, parts *of)
{
    const char *raw = body + span[0];
    Py_ssize_t size = span[1] - span[0];
    if (empties && ((size == 4 && !memcmp(raw, "null", 4)) || (size == 2 && !memcmp(raw, "\"\"", 2))))
        return PyList_Append(of->texts, Py_None) == 0 ? 1 : -1;
    if (size < 3 || raw[0] != '"' || memchr(raw, '\\', size) != NULL)
        return 0;
    PyObject *text = PyUnicode_DecodeUTF8(raw + 1, size - 2, NULL);
    int done = text != NULL && PyList_Append(of->texts, text) == 0 && PyDict_SetItem(of->fields, text, name) == 0;
    Py_XDECREF(text);
    done = done && append(of->raws, PyBytes_FromStringAndSize(raw, size)) &&
           append(of->pieces, piece_of(of, body, *reached, span[0])) &&
           append(of->pieces, PyBytes_FromStringAndSize("", 0));
    *reached = span[1];
    return done ? 1 : -1;
}

static int cut_all(const char *body, Py_ssize_t size, PyObject *const *arguments, parts *of) /* as cut_one */
{
    PyObject *numbers = PyTuple_GetItem(arguments[1], 0), *spans = PyTuple_GetItem(arguments[1], 1);
    Py_ssize_t count = numbers == NULL ? -1 : PySequence_Size(numbers), reached = 0;
    int empties = PyObject_IsTrue(arguments[3]), done = count < 0 || spans == NULL || empties < 0 ? -1 : 1;
    for (Py_ssize_t at = 0; done == 1 && at < count; at++) {
        Py_ssize_t span[2] = {0, 0};
        PyObject *number = PySequence_GetItem(numbers, at), *pair = PySequence_GetItem(spans, at + 1);
        PyObject *name = number == NULL ? NULL : PyObject_GetItem(arguments[2], number);
        if (name == NULL || !place_of(pair, span))
            done = -1;
        else
            done = reached <= span[0] && span[0] <= span[1] && span[1] <= size
                       ? cut_one(body, &reached, span, name, empties, of)
                       : 0;
        Py_XDECREF(number);
        Py_XDECREF(pair);
        Py_XDECREF(name);
    }
    if (done == 1 && !append(of->pieces, piece_of(of, body, reached, size)))
        return -1;
    return done;
}

static PyObject *cut(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    char *body;
    Py_ssize_t size;
    (void)module;
    if (given != 4 || !PyTuple_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "cut takes a text, its leaves, their names, and whether they may be empty");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[0], &body, &size) < 0)
        return NULL;
    int seen = size > SHORT_TEXT, done = -1;
    parts of = {PyList_New(0), PyDict_New(), PyList_New(0), PyList_New(0), seen ? PyMemoryView_FromObject(arguments[0]) : NULL};
    if (of.texts != NULL && of.fields != NULL && of.raws != NULL && of.pieces != NULL && (of.view != NULL) == seen)
        done = cut_all(body, size, arguments, &of);
    PyObject *result = done == 1 ? PyTuple_Pack(4, of.texts, of.fields, of.raws, of.pieces) : NULL;
    Py_XDECREF(of.texts);
    Py_XDECREF(of.fields);
    Py_XDECREF(of.raws);
    Py_XDECREF(of.pieces);
    Py_XDECREF(of.view);
    if (done == 0)
        Py_RETURN_NONE;
    return result;
}

/* ---------------------------------------------------------------- an answer and what stands in it */

/* Where a leaf of an answer stands; 0: what was found is no place in it; -1: an error. */
static int leaf_of(PyObject *spans, Py_ssize_t at, Py_ssize_t size, Py_ssize_t *span)
{
    PyObject *pair = PySequence_GetItem(spans, at);
    int done = place_of(pair, span);
    Py_XDECREF(pair);
    return !done ? -1 : span[0] >= 0 && span[0] < span[1] && span[1] <= size;
}

static PyObject *answer_fields(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    char *body;
    Py_ssize_t size, span[2] = {0, 0};
    (void)module;
    if (given != 5 || !PyTuple_Check(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "answer_fields takes a text, its leaves, their names, that of the id, and whether they may be empty");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[0], &body, &size) < 0)
        return NULL;
    PyObject *numbers = PyTuple_GetItem(arguments[1], 0), *spans = PyTuple_GetItem(arguments[1], 1);
    Py_ssize_t count = numbers == NULL ? -1 : PySequence_Size(numbers), ident = PyLong_AsSsize_t(arguments[3]);
    int empties = PyObject_IsTrue(arguments[4]), done = count < 0 || spans == NULL || empties < 0 || PyErr_Occurred() ? -1 : 1;
    PyObject *id = NULL, *fields = PyList_New(0);
    for (Py_ssize_t at = 0; done == 1 && at < count; at++) {
        PyObject *number = PySequence_GetItem(numbers, at);
        Py_ssize_t leaf = number == NULL ? -1 : PyLong_AsSsize_t(number);
        done = leaf < 0 && PyErr_Occurred() ? -1 : leaf_of(spans, at + 1, size, span);
        const char *raw = done == 1 ? body + span[0] : NULL;
        Py_ssize_t length = done == 1 ? span[1] - span[0] : 0;
        if (done == 1 && leaf == ident) {
            Py_XDECREF(id);
            id = PyBytes_FromStringAndSize(raw, length);
            done = id != NULL ? 1 : -1;
        } else if (done == 1 && !(length == 4 && !memcmp(raw, "null", 4)) && !(empties && length == 2 && raw[0] == '"')) {
            PyObject *name = PyObject_GetItem(arguments[2], number);
            done = name == NULL ? -1 : raw[0] != '"' ? 0 : append(fields, place(name, span[0], span[1])) ? 1 : -1;
            Py_XDECREF(name);
        }
        Py_XDECREF(number);
    }
    PyObject *result = done == 1 ? PyTuple_Pack(2, id == NULL ? Py_None : id, fields) : NULL;
    Py_XDECREF(id);
    Py_XDECREF(fields);
    if (done == 0)
        Py_RETURN_NONE;
    return result;
}

static PyObject *put_back(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    struct { Py_ssize_t start, end, size; const char *text; } swaps[MEMBERS];
    char *body, *token, *text;
    Py_ssize_t size, reached = 0, count, length;
    (void)module;
    if (given != 3 || !PyList_Check(arguments[1]) || !PyDict_Check(arguments[2])) {
        PyErr_SetString(PyExc_TypeError, "put_back takes a text, a list of its fields, and a dictionary of swaps");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[0], &body, &size) < 0)
        return NULL;
    count = PyList_Size(arguments[1]);
    if (count > MEMBERS)
        Py_RETURN_NONE;
    Py_ssize_t whole = size;
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *field = PyList_GetItem(arguments[1], at);
        Py_ssize_t span[2];
        if (!place_of(field, span))
            return NULL;
        PyObject *swap = PyDict_GetItemWithError(arguments[2], PyTuple_GetItem(field, 0));
        if (swap == NULL && PyErr_Occurred())
            return NULL;
        swaps[at].start = span[0];
        swaps[at].end = span[1];
        if (swap == NULL || swaps[at].start < reached || swaps[at].end < swaps[at].start || swaps[at].end > size)
            Py_RETURN_NONE;
        reached = swaps[at].end;
        if (!PyTuple_Check(swap) || PyTuple_Size(swap) != 2) {
            PyErr_SetString(PyExc_TypeError, "a swap has two parts");
            return NULL;
        }
        if (PyBytes_AsStringAndSize(PyTuple_GetItem(swap, 0), &token, &length) < 0 ||
            PyBytes_AsStringAndSize(PyTuple_GetItem(swap, 1), &text, &swaps[at].size) < 0)
            return NULL;
        if (length != reached - swaps[at].start || memcmp(token, body + swaps[at].start, length))
            Py_RETURN_NONE;
        swaps[at].text = text;
        whole += swaps[at].size - length;
    }
    PyObject *result = PyBytes_FromStringAndSize(NULL, whole);
    char *out = result == NULL ? NULL : PyBytes_AsString(result);
    reached = 0;
    for (Py_ssize_t at = 0; out != NULL && at < count; at++) {
        memcpy(out, body + reached, swaps[at].start - reached);
        out += swaps[at].start - reached;
        memcpy(out, swaps[at].text, swaps[at].size);
        out += swaps[at].size;
        reached = swaps[at].end;
    }
    if (out != NULL)
        memcpy(out, body + reached, size - reached);
    return result;
}

/* ---------------------------------------------------------------- words of tokens */

static int block_of(PyObject *block, uint64_t *halves) /* the two numbers of 16 bytes; -1: an error */
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(block, &bytes, &size) < 0)
        return -1;
    if (size != 16) {
        PyErr_SetString(PyExc_ValueError, "a word is that of 16 bytes");
        return -1;
    }
    for (int half = 0; half < 2; half++) {
        halves[half] = 0;
        for (int at = 0; at < 8; at++)
            halves[half] = halves[half] << 8 | (byte)bytes[half * 8 + at];
    }
    return 0;
}

enum { WORD62 = 22, WORD32 = 26 }; /* letters of a word */

static void spell62(uint64_t *halves, char *word)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    for (int half = 0; half < 2; half++)
        for (int at = 10; at >= 0; at--, halves[half] /= 62)
            word[half * 11 + at] = letters[halves[half] % 62];
}

static void spell32(uint64_t *halves, char *word)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuv";
    for (int at = 25; at > 0; at--) {
        word[at] = letters[halves[1] & 31];
        halves[1] = halves[1] >> 5 | halves[0] << 59;
        halves[0] >>= 5;
    }
    word[0] = letters[16 | (halves[1] & 7)];
}

static PyObject *write62(PyObject *module, PyObject *block)
{
    uint64_t halves[2];
    char word[WORD62];
    (void)module;
    if (block_of(block, halves) < 0)
        return NULL;
    spell62(halves, word);
    return PyUnicode_FromStringAndSize(word, sizeof word);
}

static PyObject *write32(PyObject *module, PyObject *block)
{
    uint64_t halves[2];
    char word[WORD32];
    (void)module;
    if (block_of(block, halves) < 0)
        return NULL;
    spell32(halves, word);
    return PyUnicode_FromStringAndSize(word, sizeof word);
}

/* ---------------------------------------------------------------- tokens in the places of texts */

enum { AFFIX = 512 }; /* bytes around a word at most */

/* What a request's texts become: tokens by field, and swaps, which stand among the pieces as well. */
typedef struct { PyObject *tokens, *swaps, *raws, *pieces; Py_ssize_t reached; } swapped;

static PyObject *quoted(PyObject *token) /* as JSON; None: it has to be escaped, or is not ASCII */
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(token, &size);
    PyObject *coded = text == NULL ? NULL : PyBytes_FromStringAndSize(NULL, size + 2);
    char *out = coded == NULL ? NULL : PyBytes_AsString(coded);
    if (out == NULL)
        return NULL;
    out[0] = out[size + 1] = '"';
    for (Py_ssize_t at = 0; at < size; at++) {
        byte c = (byte)text[at];
        if (c < 0x20 || c > 0x7E || c == '"' || c == '\\') {
            Py_DECREF(coded);
            Py_RETURN_NONE;
        }
        out[at + 1] = (char)c;
    }
    return coded;
}

/* The word of the block of a text with that number, between constant texts. */
static PyObject *spelled(PyObject *word, const byte *blocks, Py_ssize_t size, Py_ssize_t number)
{
    char text[2 * AFFIX + WORD32], *before, *behind;
    Py_ssize_t head, tail, letters = PyLong_AsSsize_t(PyTuple_GetItem(word, 1));
    uint64_t halves[2] = {0, 0};
    if (PyBytes_AsStringAndSize(PyTuple_GetItem(word, 2), &before, &head) < 0 ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(word, 3), &behind, &tail) < 0)
        return NULL;
    if (head > AFFIX || tail > AFFIX || number * 16 > size || (letters != WORD62 && letters != WORD32)) {
        PyErr_SetString(PyExc_ValueError, "a word has a block, and short texts around it");
        return NULL;
    }
    for (int at = 0; at < 16; at++)
        halves[at >> 3] = halves[at >> 3] << 8 | blocks[number * 16 - 16 + at];
    memcpy(text, before, head);
    (letters == WORD62 ? spell62 : spell32)(halves, text + head);
    memcpy(text + head + letters, behind, tail);
    return PyUnicode_FromStringAndSize(text, head + letters + tail);
}

/* Put a token, and what is stored of it, into the place of the next text. 1: done; 0: in doubt; -1: an error. */
static int put(swapped *into, PyObject *name, PyObject *token, PyObject *stored)
{
    PyObject *coded = token == NULL || stored == NULL ? NULL : quoted(token), *swap = NULL;
    int done = coded == NULL ? -1 : coded != Py_None;
    if (done == 1) {
        PyObject *raw = PySequence_GetItem(into->raws, into->reached); /* what was called may have emptied it */
        swap = raw == NULL ? NULL : PyTuple_Pack(2, coded, raw);
        Py_XDECREF(raw);
        Py_INCREF(coded); /* the list takes it */
        done = PyList_SetItem(into->pieces, 2 * into->reached + 1, coded) == 0 && swap != NULL &&
                       PyDict_SetItem(into->tokens, name, stored) == 0 && PyDict_SetItem(into->swaps, name, swap) == 0
                   ? 1
                   : -1;
        into->reached++;
    }
    Py_XDECREF(swap);
    Py_XDECREF(coded);
    return done;
}

static int differs(PyObject *token, PyObject *text) /* -1: an error */
{
    int same = PyUnicode_Compare(token, text);
    return same == -1 && PyErr_Occurred() ? -1 : same != 0;
}

/* Whether a text cannot be a token of the field: its form tells, or who knows all tokens. -1: an error. */
static int is_value(PyObject *name, PyObject *text, PyObject *form, PyObject *is_token)
{
    PyObject *hit = PyObject_CallFunctionObjArgs(form, text, NULL), *answer = NULL;
    int token = hit == NULL ? -1 : hit != Py_None;
    if (token == 1) {
        answer = PyObject_CallFunctionObjArgs(is_token, name, text, NULL);
        token = answer == NULL ? -1 : PyObject_IsTrue(answer);
    }
    Py_XDECREF(answer);
    Py_XDECREF(hit);
    return token < 0 ? -1 : !token;
}

static PyObject *tokens(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    char *blocks;
    Py_ssize_t size;
    (void)module;
    if (given != 10 || !PyList_Check(arguments[2]) || !PyList_Check(arguments[3]) || !PyList_Check(arguments[4])) {
        PyErr_SetString(PyExc_TypeError, "tokens takes words, leaves, texts, raws, pieces, blocks, and five callables");
        return NULL;
    }
    if (PyBytes_AsStringAndSize(arguments[5], &blocks, &size) < 0)
        return NULL;
    swapped into = {PyDict_New(), PyDict_New(), arguments[3], arguments[4], 0};
    Py_ssize_t count = PySequence_Size(arguments[1]);
    int done = into.tokens == NULL || into.swaps == NULL || count < 0 ? -1 : 1;
    for (Py_ssize_t at = 0; done == 1 && at < count; at++) {
        PyObject *leaf = PySequence_GetItem(arguments[1], at), *text = PySequence_GetItem(arguments[2], at);
        PyObject *word = leaf == NULL || text == NULL ? NULL : PyObject_GetItem(arguments[0], leaf);
        PyObject *name = word == NULL ? NULL : PyTuple_GetItem(word, 0), *token = NULL, *number = NULL, *one = NULL;
        if (name == NULL)
            done = -1;
        else if (text == Py_None) {
            PyObject *none = PyTuple_New(0);
            done = none != NULL && PyDict_SetItem(into.tokens, name, none) == 0 ? 1 : -1;
            Py_XDECREF(none);
        } else {
            number = PyLong_FromSsize_t(into.reached + 1);
            if (into.reached >= PyList_Size(into.raws) || 2 * into.reached + 1 >= PyList_Size(into.pieces)) {
                PyErr_SetString(PyExc_IndexError, "each text has a place");
                done = -1;
            }
            token = done < 0 ? NULL : PyTuple_Size(word) == 4 ? spelled(word, (const byte *)blocks, size, into.reached + 1)
                                            : PyObject_CallFunctionObjArgs(arguments[7], leaf, text, number, NULL);
            done = token == NULL || number == NULL ? -1 : token != Py_None;
            done = done == 1 ? differs(token, text) : done;
            done = done == 1 ? is_value(name, text, arguments[8], arguments[9]) : done;
            if (done == 1) {
                PyObject *value = PyObject_CallFunctionObjArgs(arguments[6], number, text, Py_False, token, Py_False, NULL);
                one = value == NULL ? NULL : PyTuple_Pack(1, value);
                Py_XDECREF(value);
                done = put(&into, name, token, one);
            }
        }
        Py_XDECREF(one);
        Py_XDECREF(number);
        Py_XDECREF(token);
        Py_XDECREF(word);
        Py_XDECREF(text);
        Py_XDECREF(leaf);
    }
    PyObject *next = done == 1 ? PyLong_FromSsize_t(into.reached + 1) : NULL;
    PyObject *result = next != NULL ? PyTuple_Pack(3, into.tokens, into.swaps, next) : NULL;
    Py_XDECREF(next);
    Py_XDECREF(into.tokens);
    Py_XDECREF(into.swaps);
    if (done == 0)
        Py_RETURN_NONE;
    return result;
}

enum { JSON, TOKEN_JSON, TEXT, TOKEN, ATTRIBUTES };
static PyObject *attributes[ATTRIBUTES]; /* of a stored value: their names */

/* Put the token of a stored value into the place of the next text, which is that value. As put. */
static int put_unchanged(swapped *into, PyObject *name, PyObject *text, PyObject *before, PyObject *const *tells)
{
    PyObject *of[ATTRIBUTES] = {NULL};
    if (!PyTuple_Check(before) || PyTuple_Size(before) != 1)
        return 0;
    int done = 1;
    for (int at = 0; done == 1 && at < ATTRIBUTES; at++) {
        of[at] = PyObject_GetAttr(PyTuple_GetItem(before, 0), attributes[at]);
        done = of[at] != NULL ? 1 : -1;
    }
    done = done == 1 ? of[JSON] == Py_False && of[TOKEN_JSON] == Py_False : done;
    if (done == 1) {
        int other = differs(of[TEXT], text);
        done = other < 0 ? -1 : !other;
    }
    done = done == 1 ? differs(of[TOKEN], text) : done;
    done = done == 1 ? is_value(name, text, tells[0], tells[1]) : done;
    done = done == 1 ? put(into, name, of[TOKEN], before) : done;
    for (int at = 0; at < ATTRIBUTES; at++)
        Py_XDECREF(of[at]);
    return done;
}

static PyObject *unchanged(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    (void)module;
    if (given != 8 || !PyList_Check(arguments[3]) || !PyList_Check(arguments[4]) || !PyDict_Check(arguments[5])) {
        PyErr_SetString(PyExc_TypeError, "unchanged takes words, leaves, texts, raws, pieces, stored values, and two callables");
        return NULL;
    }
    swapped into = {PyDict_New(), PyDict_New(), arguments[3], arguments[4], 0};
    Py_ssize_t count = PySequence_Size(arguments[1]);
    int done = into.tokens == NULL || into.swaps == NULL || count < 0 ? -1 : 1;
    for (Py_ssize_t at = 0; done == 1 && at < count; at++) {
        PyObject *leaf = PySequence_GetItem(arguments[1], at), *text = PySequence_GetItem(arguments[2], at);
        PyObject *word = leaf == NULL || text == NULL ? NULL : PyObject_GetItem(arguments[0], leaf);
        PyObject *name = word == NULL ? NULL : PyTuple_GetItem(word, 0);
        PyObject *before = name == NULL ? NULL : PyDict_GetItemWithError(arguments[5], name);
        Py_XINCREF(before);
        if (name == NULL || PyErr_Occurred())
            done = -1;
        else if (before != NULL)
            done = text == Py_None ? 0 : put_unchanged(&into, name, text, before, arguments + 6);
        else if (text != Py_None)
            done = 0;
        else {
            PyObject *none = PyTuple_New(0);
            done = none != NULL && PyDict_SetItem(into.tokens, name, none) == 0 ? 1 : -1;
            Py_XDECREF(none);
        }
        Py_XDECREF(before);
        Py_XDECREF(word);
        Py_XDECREF(text);
        Py_XDECREF(leaf);
    }
    PyObject *result = done == 1 ? PyTuple_Pack(2, into.tokens, into.swaps) : NULL;
    Py_XDECREF(into.tokens);
    Py_XDECREF(into.swaps);
    if (done == 0)
        Py_RETURN_NONE;
    return result;
}

/* ---------------------------------------------------------------- values in a text */

/* Characters from which on a value counts inside longer text, digits from which on they count, bytes
 * from which on its base64 is a row of so many characters (proxy/redactor/value_scan.py), and
 * characters of such rows that are read here. */
enum { INSIDE = 6, DIGITS = 4, CODED = 11, ROW = 14, CODE = 4096 };

/* "rare": of a long text, by byte how many of a sample are that one; RARE and more are none of it. */
typedef struct { const char *start; Py_ssize_t size; byte *rare; } piece;

enum { LONG_PIECE = 4 * 1024, SAMPLE = 250, ABSENT = 255, PLACES = 256 };

static void sample(piece text) /* what is rare in it */
{
    Py_ssize_t step = text.size / SAMPLE;
    memset(text.rare, 0, 256);
    for (Py_ssize_t at = 0, count = 0; count < SAMPLE; at += step, count++)
        text.rare[(byte)text.start[at]]++;
}

/* Whether a text holds a part. In a long one the places of its rarest byte are looked at, if these are few. */
static int holds(piece text, const char *part, Py_ssize_t size)
{
    const char *at = text.start, *end = at + text.size;
    if (size > text.size)
        return 0;
    if (text.rare != NULL && size > 0) {
        Py_ssize_t rarest = 0;
        for (Py_ssize_t index = 0; index < size; index++) {
            byte count = text.rare[(byte)part[index]];
            if (count == ABSENT)
                return 0;
            if (count < text.rare[(byte)part[rarest]])
                rarest = index;
        }
        at = memchr(at, part[rarest], text.size);
        if (at == NULL) {
            text.rare[(byte)part[rarest]] = ABSENT;
            return 0;
        }
        for (int places = 0; places < PLACES; places++) {
            if (at - text.start >= rarest && end - at >= size - rarest && !memcmp(at - rarest, part, size))
                return 1;
            if (++at == end || (at = memchr(at, part[rarest], end - at)) == NULL)
                return 0;
        }
        at = at - text.start >= rarest ? at - rarest : text.start;
    }
    return memmem(at, end - at, part, size) != NULL;
}

static Py_ssize_t base64(const byte *raw, Py_ssize_t size, char *coded) /* whole characters, no "=" */
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    Py_ssize_t count = 0;
    uint32_t bits = 0;
    int left = 0;
    for (Py_ssize_t at = 0; at < size; at++) {
        bits = bits << 8 | raw[at];
        for (left += 8; left >= 6; left -= 6)
            coded[count++] = letters[bits >> (left - 6) & 63];
    }
    if (left > 0)
        coded[count++] = letters[bits << (6 - left) & 63];
    return count;
}

static int in_base64(byte c)
{
    static const byte letters[256] = {
        ['0' ... '9'] = 1, ['A' ... 'Z'] = 1, ['a' ... 'z'] = 1, ['+'] = 1, ['/'] = 1, ['-'] = 1, ['_'] = 1};
    return letters[c];
}

static unsigned number_of(byte c) /* what a character of base64 stands for, in either alphabet */
{
    return c >= 'a' ? c - 71u : c >= 'A' && c <= 'Z' ? c - 65u : c >= '0' && c <= '9' ? c + 4u : c == '+' || c == '-' ? 62 : 63;
}

static Py_ssize_t uncode(const byte *code, Py_ssize_t size, char *bytes) /* what is cut off counts as zero */
{
    Py_ssize_t count = 0;
    for (Py_ssize_t at = 0; at < size; at += 4) {
        uint32_t bits = 0;
        for (Py_ssize_t one = at; one < at + 4; one++)
            bits = bits << 6 | (one < size ? number_of(code[one]) : 0);
        for (int shift = 16; shift >= 0; shift -= 8)
            bytes[count++] = (char)(bits >> shift);
    }
    return count;
}

/* What the rows of base64 in a text stand for, wherever in them a code begins; -1: they are too long. It looks at every
 * fourteenth byte, and back from those of base64: a row begins behind a byte that is none. */
static Py_ssize_t uncoded_of(piece text, char *bytes)
{
    Py_ssize_t start = 0, count = 0, left = CODE;
    while (start + ROW <= text.size) {
        Py_ssize_t at = start + ROW;
        while (at > start && in_base64((byte)text.start[at - 1]))
            at--;
        if (at == start) {
            at += ROW;
            while (at < text.size && in_base64((byte)text.start[at]))
                at++;
            left -= at - start;
            if (left < 0)
                return -1;
            for (Py_ssize_t first = start; first < start + 4; first++) {
                count += uncode((const byte *)text.start + first, at - first, bytes + count);
                bytes[count++] = '\n';
            }
        }
        start = at;
    }
    return count;
}

static int stands(piece heap, piece uncoded, piece raw, Py_ssize_t length) /* whether it may */
{
    char coded[8 * INSIDE]; /* a character has four bytes at most */
    byte shifted[2 + CODED] = {0};
    if (length < INSIDE) {
        Py_ssize_t digits = 0;
        while (digits < raw.size && raw.start[digits] >= '0' && raw.start[digits] <= '9')
            digits++;
        if (raw.size < 2 || (raw.size < DIGITS && digits == raw.size))
            return 0;
        return holds(heap, raw.start, raw.size) ||
               holds(heap, coded, base64((const byte *)raw.start, raw.size, coded));
    }
    if (holds(heap, raw.start, raw.size) || holds(uncoded, raw.start, raw.size))
        return 1;
    if (raw.size >= CODED)
        return 0;
    memcpy(shifted + 2, raw.start, raw.size);
    for (int before = 0; before < 3; before++) { /* bytes in front of it in its first three */
        static const int skipped[] = {0, 2, 3};
        base64(shifted + 2 - before, raw.size + before, coded);
        const char *form = coded + skipped[before];
        Py_ssize_t size = (raw.size + before) * 4 / 3 - skipped[before];
        if (holds(heap, form, size))
            return 1;
        for (char *one = coded; one < form + size; one++)
            *one = *one == '+' ? '-' : *one == '/' ? '_' : *one;
        if (holds(heap, form, size))
            return 1;
    }
    return 0;
}

static PyObject *absent(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    piece heap, uncoded;
    char bytes[4 * CODE]; /* of n characters less than 3 n + 16, and those are 14 or more */
    PyObject *text, *field;
    Py_ssize_t at = 0;
    (void)module;
    if ((given != 2 && given != 4) || !PyDict_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "absent takes a dictionary of values, a text, and perhaps where to begin and to end in it");
        return NULL;
    }
    char *start;
    byte rare[256];
    if (PyBytes_AsStringAndSize(arguments[1], &start, &heap.size) < 0)
        return NULL;
    if (given == 4) {
        Py_ssize_t first = PyLong_AsSsize_t(arguments[2]), last = PyLong_AsSsize_t(arguments[3]);
        if (first < 0 || last < first || last > heap.size) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_IndexError, "no such part");
            return NULL;
        }
        start += first;
        heap.size = last - first;
    }
    heap.start = start;
    heap.rare = heap.size >= LONG_PIECE ? rare : NULL;
    if (heap.rare != NULL)
        sample(heap);
    uncoded.rare = NULL;
    uncoded.start = bytes;
    uncoded.size = uncoded_of(heap, bytes);
    if (uncoded.size < 0)
        Py_RETURN_FALSE;
    while (PyDict_Next(arguments[0], &at, &text, &field)) {
        piece raw;
        if (!PyUnicode_Check(text) || (raw.start = PyUnicode_AsUTF8AndSize(text, &raw.size)) == NULL) {
            PyErr_Clear(); /* half of a surrogate pair */
            Py_RETURN_FALSE;
        }
        if (stands(heap, uncoded, raw, PyUnicode_GetLength(text)))
            Py_RETURN_FALSE;
    }
    Py_RETURN_TRUE;
}

static PyMethodDef functions[] = {
    {"find", (PyCFunction)(void (*)(void))find, METH_FASTCALL, "Leaves of a text, and their spans; None: in doubt."},
    {"cut", (PyCFunction)(void (*)(void))cut, METH_FASTCALL, "Texts of leaves, and what is around; None: another value."},
    {"answer_fields", (PyCFunction)(void (*)(void))answer_fields, METH_FASTCALL, "The id and the fields of an answer; None: no texts."},
    {"put_back", (PyCFunction)(void (*)(void))put_back, METH_FASTCALL, "Texts in the places of tokens; None: others."},
    {"write62", write62, METH_O, "16 bytes as a word of 22 letters and digits."},
    {"write32", write32, METH_O, "16 bytes as a word of 26 small letters and digits."},
    {"tokens", (PyCFunction)(void (*)(void))tokens, METH_FASTCALL, "Tokens of new texts in their places; None: in doubt."},
    {"unchanged", (PyCFunction)(void (*)(void))unchanged, METH_FASTCALL, "Tokens of stored texts in their places; None: others."},
    {"absent", (PyCFunction)(void (*)(void))absent, METH_FASTCALL, "Whether no value stands in a text in any form."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_spans", NULL, 0, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__spans(void)
{
    static const char *const names[ATTRIBUTES] = {"json", "token_json", "text", "token"};
    for (int at = 0; at < ATTRIBUTES; at++)
        if (attributes[at] == NULL && (attributes[at] = PyUnicode_InternFromString(names[at])) == NULL)
            return NULL;
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddStringConstant(module, "SOURCE_DIGEST", SOURCE_DIGEST) < 0)
        Py_CLEAR(module);
    return module;
}
