// The functions that the machine provides to kernels, and the registration of kernels.
#pragma once
#include <cstdint>

namespace machine {

typedef unsigned Three __attribute__((ext_vector_type(3)));

// Lanes of a simdgroup, as on Apple's GPUs.
constexpr unsigned WIDTH = 32;

// Any value that lanes exchange.
struct Bits { uint64_t words[2]; };

// What the lanes of a simdgroup have published, and how many lanes it has.
struct Lanes { const Bits *published; unsigned count, own; };

// The optimiser knows as little about these functions as Apple's about its own: they are defined elsewhere, code does
// not move to where fewer invocations reach it, and they change what their pointers point to but do not store the
// pointers.
#define CONVERGENT __attribute__((convergent))
#define NOT_KEPT __attribute__((noescape))

// Waits for all invocations of the workgroup. Like every function that waits, it gets the line of the call: all that
// wait together must be at the same one.
CONVERGENT void barrier(unsigned line);

// Waits for all lanes of the simdgroup and gives them each other's bits.
CONVERGENT Lanes exchange(Bits own, unsigned line);

// The index of the invocation in its simdgroup.
unsigned lane();

// The result of a function that may be off by `most`, or by this many units in the last place: see machine.cpp. It
// depends only on the arguments.
__attribute__((const)) float within(double exact, double most);
__attribute__((const)) float within_ulps(double exact, double ulps);

// Atomics: invocations take turns, so no other access intervenes. An update returns the previous value.
enum class Update { EXCHANGE, ADD, SUB, MAX, MIN, OR, AND, XOR };
template <class T> T atomic_load(NOT_KEPT const T *from);
template <class T> void atomic_store(NOT_KEPT T *to, T value);
template <class T> T atomic_update(Update update, NOT_KEPT T *at, T value);

struct Invocation {
    Three workgroup, workgroups, local, global;
    unsigned index, size; // in the workgroup, and of it
};

// The most arguments in workgroup memory that a kernel may have.
constexpr unsigned ARRAYS = 32;

// A kernel, which is registered with the machine when its object is linked.
struct Kernel {
    const char *name;
    void (*run)(const Invocation &, void *const *buffers, void *const *arrays);
    unsigned size;               // invocations of a workgroup
    unsigned arrays[ARRAYS + 1]; // bytes of its arguments in workgroup memory, then zero
    Kernel *next;
    static Kernel *first;

    Kernel(const char *name, decltype(run) run, unsigned size, const unsigned (&bytes)[ARRAYS + 1])
        : name(name), run(run), size(size), next(first) {
        for (unsigned i = 0; i <= ARRAYS; i++) arrays[i] = bytes[i];
        first = this;
    }
};

} // namespace machine

// a / b as Metal may compute it, for the intermediate code of kernels: 1 / b within 1 unit in the last place, others
// within 2.5.
extern "C" __attribute__((const)) float machine_quotient(float a, float b);
