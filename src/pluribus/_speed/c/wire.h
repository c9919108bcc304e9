/* A datagram socket of IPv4. `wires.py` says what it is for. The calls do not block, so nobody has to be let in
 * meanwhile; a short datagram costs no buffer of the longest, and a known address is not read again.
 *
 * Trains (`engines/trains.py`) are joined where they arrive: when the first segment of one has come, the next is received
 * behind it, in the place where it belongs. What comes instead is copied out of there. If a segment is missing, those
 * before it are given out as they came, and the joiner has them. */

#ifndef MS_WINDOWS

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define DATAGRAM_BYTES 65536
#define SHORT_BYTES 4096 /* what is shorter is copied, and the buffer used again */
#define SOURCES 16       /* a power of two */
#define HEAD_BYTES 10
#define MARK 0xC1
#define TRAIN_VERSION 1
#define SEGMENTS_MAX 256  /* of a train, as core/limits.py has it */
#define STRANGERS_MAX 256 /* datagrams of others while a train is not going on */

typedef struct {
    unsigned index, total;
    uint32_t number;
} Head;

typedef struct {
    PyObject *data; /* bytes that nobody else has, or NULL: there is none */
    struct sockaddr_in from;
    Head head; /* of the segment that is due */
    size_t step, filled;
    int strangers;
} Train;

#define LOOSE 8 /* trains of which the joiner was given something last: it is given the rest, too */

typedef struct {
    PyObject_HEAD
    PyObject *sock;   /* for addresses that are names */
    PyObject *buffer; /* bytes that nobody else has, or NULL */
    PyObject *target; /* the last one, and what it is to the kernel */
    struct sockaddr_in to;
    PyObject *sources[SOURCES];
    struct sockaddr_in from[SOURCES];
    Train train;
    struct {
        struct sockaddr_in from;
        uint32_t number;
    } loose[LOOSE];
    unsigned loosened;
    size_t joins; /* the longest train that is joined here; 0: none is */
    int fd;
} Wire;

static PyTypeObject WireType;

static void
wire_dealloc(Wire *self)
{
    Py_XDECREF(self->sock);
    Py_XDECREF(self->buffer);
    Py_XDECREF(self->target);
    Py_XDECREF(self->train.data);
    for (int place = 0; place < SOURCES; place++) {
        Py_XDECREF(self->sources[place]);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *
wire_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"sock", "joins", NULL};
    PyObject *sock;
    Py_ssize_t joins = 0;
    Wire *self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|n", names, &sock, &joins)) {
        return NULL;
    }
    self = (Wire *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->sock = Py_NewRef(sock);
    self->joins = joins > 0 ? (size_t)joins : 0;
    self->fd = PyObject_AsFileDescriptor(sock);
    if (self->fd < 0) {
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static int
is_same_source(const struct sockaddr_in *one, const struct sockaddr_in *other)
{
    return one->sin_port == other->sin_port && one->sin_addr.s_addr == other->sin_addr.s_addr;
}

static PyObject *
source_of(Wire *self, const struct sockaddr_in *from)
{ /* host and port: a new reference */
    int place = ntohs(from->sin_port) & (SOURCES - 1);
    struct sockaddr_in *known = &self->from[place];
    char host[INET_ADDRSTRLEN];
    if (self->sources[place] == NULL || !is_same_source(known, from)) {
        PyObject *source = inet_ntop(AF_INET, &from->sin_addr, host, sizeof(host)) == NULL
            ? PyErr_SetFromErrno(PyExc_OSError)
            : Py_BuildValue("(si)", host, ntohs(from->sin_port));
        if (source == NULL) {
            return NULL;
        }
        Py_XSETREF(self->sources[place], source);
        *known = *from;
    }
    return Py_NewRef(self->sources[place]);
}

static PyObject *
given_bytes(Wire *self, Py_ssize_t size)
{ /* what lies in the buffer */
    PyObject *data;
    if (size < SHORT_BYTES) {
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self->buffer), size);
    }
    data = self->buffer;
    self->buffer = NULL;
    return _PyBytes_Resize(&data, size) < 0 ? NULL : data;
}

static int
append_datagram(Wire *self, PyObject *got, PyObject *data, const struct sockaddr_in *from)
{ /* takes the data, which may be NULL with an error */
    PyObject *source = data == NULL ? NULL : source_of(self, from);
    PyObject *pair = source == NULL ? NULL : PyTuple_Pack(2, data, source);
    int failed = pair == NULL ? -1 : PyList_Append(got, pair);
    Py_XDECREF(data);
    Py_XDECREF(source);
    Py_XDECREF(pair);
    return failed;
}

/* Trains */

static int
is_head(const unsigned char *at, size_t size, Head *head)
{
    if (size < HEAD_BYTES || at[0] != MARK || at[1] != TRAIN_VERSION) {
        return 0;
    }
    head->index = (unsigned)at[2] << 8 | at[3];
    head->total = (unsigned)at[4] << 8 | at[5];
    head->number = (uint32_t)at[6] << 24 | (uint32_t)at[7] << 16 | (uint32_t)at[8] << 8 | at[9];
    return head->index < head->total;
}

static void
write_head(unsigned char *at, const Head *head)
{
    const unsigned char said[HEAD_BYTES] = {
        MARK, TRAIN_VERSION, (unsigned char)(head->index >> 8), (unsigned char)head->index, (unsigned char)(head->total >> 8),
        (unsigned char)head->total, (unsigned char)(head->number >> 24), (unsigned char)(head->number >> 16),
        (unsigned char)(head->number >> 8), (unsigned char)head->number};
    memcpy(at, said, HEAD_BYTES);
}

static int
is_loose(Wire *self, const struct sockaddr_in *from, uint32_t number)
{
    for (unsigned place = 0; place < LOOSE && place < self->loosened; place++) {
        if (self->loose[place].number == number && is_same_source(&self->loose[place].from, from)) {
            return 1;
        }
    }
    return 0;
}

static int
append_loose(Wire *self, PyObject *got, PyObject *data, const struct sockaddr_in *from)
{ /* as it came; if it is a segment, the joiner will have it */
    Head head;
    if (data != NULL && is_head((const unsigned char *)PyBytes_AS_STRING(data), (size_t)PyBytes_GET_SIZE(data), &head)
        && !is_loose(self, from, head.number)) {
        self->loose[self->loosened % LOOSE].from = *from;
        self->loose[self->loosened % LOOSE].number = head.number;
        self->loosened += self->loosened < 2 * LOOSE - 1 ? 1 : 1 - LOOSE;
    }
    return append_datagram(self, got, data, from);
}

static int
train_begins(Wire *self, const unsigned char *at, size_t size, const struct sockaddr_in *from)
{ /* whether it does, with this datagram; then it holds it */
    Train *train = &self->train;
    Head head;
    size_t step = size - HEAD_BYTES;
    if (!is_head(at, size, &head) || head.index != 0 || head.total < 2 || head.total > SEGMENTS_MAX || step == 0
        || head.total > self->joins / step + 1 || is_loose(self, from, head.number)) {
        return 0;
    }
    train->data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(head.total * step));
    if (train->data == NULL) {
        return -1;
    }
    memcpy(PyBytes_AS_STRING(train->data), at + HEAD_BYTES, step);
    train->from = *from;
    train->head = (Head){1, head.total, head.number};
    train->step = train->filled = step;
    train->strangers = 0;
    return 1;
}

static int
train_spills(Wire *self, PyObject *got)
{ /* it is not going on: its segments as they came */
    Train *train = &self->train;
    PyObject *whole = train->data;
    int failed = 0;
    train->data = NULL;
    for (unsigned index = 0; !failed && index < train->head.index; index++) {
        Head head = {index, train->head.total, train->head.number};
        PyObject *data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(HEAD_BYTES + train->step));
        if (data != NULL) {
            write_head((unsigned char *)PyBytes_AS_STRING(data), &head);
            memcpy(PyBytes_AS_STRING(data) + HEAD_BYTES, PyBytes_AS_STRING(whole) + index * train->step, train->step);
        }
        failed = append_loose(self, got, data, &train->from);
    }
    Py_DECREF(whole);
    return failed;
}

static int
train_ends(Wire *self, PyObject *got)
{
    PyObject *whole = self->train.data;
    self->train.data = NULL;
    if (self->train.filled > self->joins) { /* longer than anybody may send */
        Py_DECREF(whole);
        return 0;
    }
    if (_PyBytes_Resize(&whole, (Py_ssize_t)self->train.filled) < 0) {
        return -1;
    }
    return append_datagram(self, got, whole, &self->train.from);
}

static int
receive_segment(Wire *self, PyObject *got)
{ /* of the train, in its place; or whatever comes. 1: something came, 0: there is nothing */
    Train *train = &self->train;
    unsigned char said[HEAD_BYTES];
    struct sockaddr_in from = {0};
    size_t room = (size_t)PyBytes_GET_SIZE(train->data) - train->filled;
    char *place = PyBytes_AS_STRING(train->data) + train->filled;
    struct iovec parts[] = {
        {said, HEAD_BYTES}, {place, room < train->step ? room : train->step}, {PyBytes_AS_STRING(self->buffer), DATAGRAM_BYTES}};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof(from), .msg_iov = parts, .msg_iovlen = 3};
    ssize_t came = recvmsg(self->fd, &message, MSG_DONTWAIT);
    size_t size = (size_t)came, inside;
    Head head;
    PyObject *data;
    int same;
    if (came < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : (PyErr_SetFromErrno(PyExc_OSError), -1);
    }
    same = is_same_source(&from, &train->from) && is_head(said, size, &head);
    if (same && head.number == train->head.number && head.total == train->head.total && head.index == train->head.index
        && (size == HEAD_BYTES + train->step || (head.index == head.total - 1 && size < HEAD_BYTES + train->step))) {
        train->filled += size - HEAD_BYTES;
        train->head.index++;
        train->strangers = 0;
        return train->head.index == train->head.total && train_ends(self, got) < 0 ? -1 : 1;
    }
    data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (data == NULL) {
        return -1;
    }
    inside = size < HEAD_BYTES ? size : HEAD_BYTES;
    memcpy(PyBytes_AS_STRING(data), said, inside);
    if (size > HEAD_BYTES) {
        size_t behind = size - HEAD_BYTES, placed = behind < parts[1].iov_len ? behind : parts[1].iov_len;
        memcpy(PyBytes_AS_STRING(data) + HEAD_BYTES, place, placed);
        memcpy(PyBytes_AS_STRING(data) + HEAD_BYTES + placed, PyBytes_AS_STRING(self->buffer), behind - placed);
    }
    if ((same || ++train->strangers > STRANGERS_MAX) && train_spills(self, got) < 0) {
        Py_DECREF(data);
        return -1;
    }
    return append_loose(self, got, data, &from) < 0 ? -1 : 1;
}

static int
receive_datagram(Wire *self, PyObject *got)
{ /* 1: something came, 0: there is nothing */
    struct sockaddr_in from = {0};
    socklen_t length = sizeof(from);
    ssize_t size;
    int begins;
    if (self->buffer == NULL && (self->buffer = PyBytes_FromStringAndSize(NULL, DATAGRAM_BYTES)) == NULL) {
        return -1;
    }
    if (self->train.data != NULL) {
        return receive_segment(self, got);
    }
    size = recvfrom(
        self->fd, PyBytes_AS_STRING(self->buffer), DATAGRAM_BYTES, MSG_DONTWAIT, (struct sockaddr *)&from, &length);
    if (size < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : (PyErr_SetFromErrno(PyExc_OSError), -1);
    }
    begins = train_begins(self, (const unsigned char *)PyBytes_AS_STRING(self->buffer), (size_t)size, &from);
    if (begins != 0) {
        return begins;
    }
    return append_loose(self, got, given_bytes(self, size), &from) < 0 ? -1 : 1;
}

static PyObject *
wire_receive(Wire *self, PyObject *const *given, Py_ssize_t count)
{
    long most = count == 2 ? PyLong_AsLong(given[0]) : -1, enough = count == 2 ? PyLong_AsLong(given[1]) : -1;
    PyObject *got;
    int came = 1;
    if (most < 0 || enough < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "receive takes how many datagrams at most, and how short a lone one is");
        }
        return NULL;
    }
    got = PyList_New(0);
    for (long calls = 0; got != NULL && came > 0 && calls < most; calls++) {
        came = receive_datagram(self, got);
        if (calls == 0 && PyList_GET_SIZE(got) == 1
            && PyBytes_GET_SIZE(PyTuple_GET_ITEM(PyList_GET_ITEM(got, 0), 0)) < enough) {
            break; /* one that is short is alone */
        }
    }
    if (came < 0) {
        if (PyList_GET_SIZE(got) > 0 && PyErr_ExceptionMatches(PyExc_OSError)) {
            PyErr_Clear(); /* what came before it is not lost by it */
        }
        else {
            Py_CLEAR(got);
        }
    }
    return got;
}

static int
wire_aim(Wire *self, PyObject *target)
{ /* whether it is an address of IPv4 in figures */
    PyObject *host, *port;
    const char *text;
    long number;
    if (target == self->target) {
        return 1;
    }
    if (!PyTuple_CheckExact(target) || PyTuple_GET_SIZE(target) != 2) {
        return 0;
    }
    host = PyTuple_GET_ITEM(target, 0);
    port = PyTuple_GET_ITEM(target, 1);
    number = PyLong_CheckExact(port) ? PyLong_AsLong(port) : -1;
    text = PyUnicode_CheckExact(host) ? PyUnicode_AsUTF8(host) : NULL;
    if (text == NULL || number < 0 || number > 65535 || inet_pton(AF_INET, text, &self->to.sin_addr) != 1) {
        PyErr_Clear();
        Py_CLEAR(self->target);
        return 0;
    }
    self->to.sin_family = AF_INET;
    self->to.sin_port = htons((uint16_t)number);
    Py_XSETREF(self->target, Py_NewRef(target));
    return 1;
}

static PyObject *
wire_send(Wire *self, PyObject *const *given, Py_ssize_t count)
{
    ssize_t size;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "send takes a datagram, and where it goes");
        return NULL;
    }
    if (!PyBytes_CheckExact(given[0]) || !wire_aim(self, given[1])) {
        static PyObject *name = NULL;
        if (name == NULL && (name = PyUnicode_InternFromString("sendto")) == NULL) {
            return NULL;
        }
        PyObject *passed[] = {self->sock, given[0], given[1]};
        return PyObject_VectorcallMethod(name, passed, 3, NULL);
    }
    size = sendto(
        self->fd, PyBytes_AS_STRING(given[0]), (size_t)PyBytes_GET_SIZE(given[0]), MSG_DONTWAIT, (struct sockaddr *)&self->to,
        sizeof(self->to));
    return size < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromSsize_t(size);
}

static PyObject *
wire_close(Wire *self, PyObject *Py_UNUSED(none))
{
    self->fd = -1;
    Py_RETURN_NONE;
}

static PyMethodDef wire_methods[] = {
    {"receive", (PyCFunction)(void (*)(void))wire_receive, METH_FASTCALL, "What has come."},
    {"send", (PyCFunction)(void (*)(void))wire_send, METH_FASTCALL, "Send a datagram."},
    {"close", (PyCFunction)wire_close, METH_NOARGS, "The socket is no longer ours."},
    {NULL},
};

static PyTypeObject WireType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "pluribus._speed._quick.Wire",
    .tp_doc = "A datagram socket of IPv4.",
    .tp_basicsize = sizeof(Wire),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = wire_new,
    .tp_dealloc = (destructor)wire_dealloc,
    .tp_methods = wire_methods,
};

#endif
