// A machine for kernels: a process that keeps buffers and runs dispatches as its standard input asks for them.
//
// Every invocation is a fiber, which runs until it waits for others. The lanes of a simdgroup must all come to the same
// call, and the invocations of a workgroup to the same barrier; where they do not, the process says who waits where and
// ends. Memory of a workgroup holds NaNs before it is written, and ends, as buffers do, where the process may not go.
//
// Simdgroups run one after the other from barrier to barrier, so that one that reads too early what another writes
// finds nothing; `-DBACKWARDS` turns their order and that of workgroups around, which finds the same the other way.
#include "machine.h"
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <sys/mman.h>
#include <type_traits>
#include <ucontext.h>
#include <unistd.h>
#include <vector>
#ifdef __SSE__
#include <xmmintrin.h>
#endif

namespace machine {

Kernel *Kernel::first;

namespace {

// What a process that met a fault ends with.
constexpr int FAULT = 3;
constexpr size_t STACK = 128 << 10;
constexpr size_t PAGE = 64 << 10;

enum State { READY, AT_BARRIER, IN_SIMDGROUP, DONE };

struct Fiber {
    jmp_buf place;
    State state;
    bool begun;    // on its own stack
    unsigned line; // where it waits
    Invocation invocation;
};

const Kernel *running;
std::vector<Fiber> fibers;
std::vector<std::vector<Bits>> published; // of each simdgroup: two turns of its lanes
std::vector<unsigned> turns;
Fiber *current;
char *stacks;
jmp_buf scheduler;
void *const *buffers;
void *arrays[ARRAYS];

[[noreturn]] void fault(const char *what, Fiber *at) {
    printf("FAULT %s: %s", running ? running->name : "the machine", what);
    if (running && at) {
        const auto &i = at->invocation;
        printf("; in workgroup %u, %u, %u", i.workgroup[0], i.workgroup[1], i.workgroup[2]);
    }
    fflush(stdout);
    _exit(FAULT);
}

void wait(State state, unsigned line) {
    current->state = state;
    current->line = line;
    if (!_setjmp(current->place)) _longjmp(scheduler, 1);
}

#ifdef BACKWARDS
unsigned in_order(unsigned i, unsigned count) { return count - 1 - i; }
#else
unsigned in_order(unsigned i, unsigned) { return i; }
#endif

// ---- fibers

void live() {
    for (;;) {
        running->run(current->invocation, buffers, arrays);
        wait(DONE, 0);
    }
}

// Takes a fiber to a stack of its own.
void begin(Fiber &fiber) {
    static ucontext_t start;
    fiber.begun = true;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks + STACK * fiber.invocation.index;
    start.uc_stack.ss_size = STACK;
    makecontext(&start, live, 0);
    setcontext(&start);
}

// Runs a fiber until it waits. Jumps spare the calls of the system that switching contexts makes.
void resume(Fiber &fiber) {
    current = &fiber;
    if (_setjmp(scheduler)) return;
    if (fiber.begun) _longjmp(fiber.place, 1);
    begin(fiber);
}

// ---- a workgroup

// The lanes of a simdgroup.
struct Simdgroup {
    unsigned first, count;
    explicit Simdgroup(unsigned index) : first(index * WIDTH), count(WIDTH) {
        if (first + count > fibers.size()) count = fibers.size() - first;
    }
    unsigned waiting(State state) const {
        unsigned n = 0;
        for (unsigned i = 0; i < count; i++) n += fibers[first + i].state == state;
        return n;
    }
    void release() const {
        for (unsigned i = 0; i < count; i++) fibers[first + i].state = READY;
    }
};

unsigned simdgroups() { return (fibers.size() + WIDTH - 1) / WIDTH; }

// Says who waits where.
[[noreturn]] void stuck(const char *what, unsigned first, unsigned count) {
    std::map<std::pair<int, unsigned>, unsigned> places;
    for (unsigned i = first; i < first + count; i++) places[{fibers[i].state, fibers[i].line}]++;
    std::string where = what;
    const char *names[] = {"not begun", "at the barrier of line", "in a simdgroup function of line", "done"};
    for (auto &place : places) {
        where += "; " + std::to_string(place.second) + " " + names[place.first.first];
        if (place.first.second) where += " " + std::to_string(place.first.second);
    }
    fault(where.c_str(), &fibers[first]);
}

void same_line(const char *what, unsigned first, unsigned count) {
    for (unsigned i = 1; i < count; i++)
        if (fibers[first + i].line != fibers[first].line) stuck(what, first, count);
}

// Runs a simdgroup until all its lanes are at a barrier or done.
void run_simdgroup(const Simdgroup &group) {
    for (;;) {
        for (unsigned i = 0; i < group.count; i++) {
            Fiber &fiber = fibers[group.first + in_order(i, group.count)];
            if (fiber.state == READY) resume(fiber);
        }
        unsigned together = group.waiting(IN_SIMDGROUP);
        if (together == 0) return;
        const char *what = "the lanes of a simdgroup are not at the same call";
        if (together != group.count) stuck(what, group.first, group.count);
        same_line(what, group.first, group.count);
        turns[group.first / WIDTH] ^= 1;
        group.release();
    }
}

void run_workgroup() {
    for (;;) {
        unsigned at_barrier = 0;
        for (unsigned g = 0; g < simdgroups(); g++) run_simdgroup(Simdgroup(in_order(g, simdgroups())));
        for (unsigned g = 0; g < simdgroups(); g++) at_barrier += Simdgroup(g).waiting(AT_BARRIER);
        if (at_barrier == 0) return;
        const char *what = "the invocations of a workgroup are not at the same barrier";
        if (at_barrier != fibers.size()) stuck(what, 0, fibers.size());
        same_line(what, 0, fibers.size());
        for (auto &fiber : fibers) fiber.state = READY;
    }
}

// ---- memory

// Memory that ends, to 16 bytes, where the process may not go.
struct Region {
    char *whole = nullptr, *start = nullptr;
    size_t mapped = 0, bytes = 0;

    void make(size_t wanted) {
        bytes = wanted;
        size_t usable = (bytes + 15) / 16 * 16, pages = (usable + PAGE - 1) / PAGE * PAGE;
        mapped = pages + PAGE;
        whole = (char *)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (whole == MAP_FAILED || mprotect(whole + pages, PAGE, PROT_NONE)) fault("no memory", nullptr);
        start = whole + pages - usable;
    }
    void free() {
        if (whole) munmap(whole, mapped);
        whole = nullptr;
    }
};

void outside(int, siginfo_t *, void *) {
    fault("reads or writes outside its buffers and arrays, or where a vector may not lie", current);
}

// Has a fault of memory reported, on a stack of its own.
void watch_memory() {
    static char stack[64 << 10];
    stack_t own = {};
    own.ss_sp = stack;
    own.ss_size = sizeof stack;
    sigaltstack(&own, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = outside;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, nullptr);
}

// ---- a dispatch

struct Dispatch {
    Three grid;
    Region own_stacks, memory[ARRAYS];

    explicit Dispatch(Three grid) : grid(grid) {
        unsigned size = running->size;
        fibers.assign(size, Fiber());
        turns.assign(simdgroups(), 0);
        published.assign(simdgroups(), std::vector<Bits>(2 * WIDTH));
        for (unsigned i = 0; running->arrays[i]; i++) {
            memory[i].make(running->arrays[i]);
            arrays[i] = memory[i].start;
        }
        own_stacks.make(STACK * size);
        stacks = own_stacks.start;
    }
    ~Dispatch() {
        for (auto &region : memory) region.free();
        own_stacks.free();
    }

    void run() {
        unsigned count = grid[0] * grid[1] * grid[2];
        for (unsigned i = 0; i < count; i++) {
            unsigned w = in_order(i, count);
            enter(Three{w % grid[0], w / grid[0] % grid[1], w / grid[0] / grid[1]});
            run_workgroup();
        }
    }

    void enter(Three workgroup) {
        for (auto &region : memory)
            if (region.whole) memset(region.start, 0xff, region.bytes);
        unsigned size = running->size, index = 0;
        for (auto &fiber : fibers) {
            Three local = {index, 0, 0}, global = {workgroup[0] * size + index, workgroup[1], workgroup[2]};
            fiber.invocation = {workgroup, grid, local, global, index, size};
            fiber.state = READY;
            index++;
        }
    }
};

// ---- what the process is asked for

// Reads from the standard input; false at its end.
bool take(void *to, size_t bytes) { return fread(to, 1, bytes, stdin) == bytes; }

uint64_t number() {
    uint64_t n;
    if (!take(&n, sizeof n)) fault("a request was cut short", nullptr);
    return n;
}

std::vector<Region> kept;

char *place(uint64_t buffer, uint64_t offset, uint64_t bytes) {
    if (buffer >= kept.size() || offset + bytes > kept[buffer].bytes) fault("no such part of a buffer", nullptr);
    return kept[buffer].start + offset;
}

void find_kernel(const std::string &name) {
    for (running = Kernel::first; running; running = running->next)
        if (name == running->name) return;
    fault(("no kernel " + name).c_str(), nullptr);
}

void dispatch() {
    std::string name(number(), ' ');
    take(&name[0], name.size());
    find_kernel(name);
    unsigned x = number(), y = number(), z = number();
    std::vector<void *> bound(number());
    for (auto &buffer : bound) {
        uint64_t index = number(), offset = number();
        buffer = place(index, offset, 0);
    }
    buffers = bound.data();
    Dispatch(Three{x, y, z}).run();
    running = nullptr;
}

} // namespace

} // namespace machine

// Requests, of numbers of 64 bits: `b` makes a buffer, `w` writes to one, `r` reads, `d` runs a kernel.
int main() {
    using namespace machine;
    watch_memory();
#if defined(FLUSH) && defined(__SSE__)
    _mm_setcsr(_mm_getcsr() | 0x8040); // f32 too small to be normal are zero, as on Apple's GPUs
#endif
    for (char request; take(&request, 1);) {
        uint64_t buffer, offset, bytes;
        switch (request) {
        case 'b':
            kept.emplace_back();
            kept.back().make(number());
            break;
        case 'w':
            buffer = number(), offset = number(), bytes = number();
            take(place(buffer, offset, bytes), bytes);
            break;
        case 'r':
            buffer = number(), offset = number(), bytes = number();
            printf("DATA\n");
            fwrite(place(buffer, offset, bytes), 1, bytes, stdout);
            fflush(stdout);
            break;
        case 'd':
            dispatch();
            break;
        default:
            fault("an unknown request", nullptr);
        }
    }
}

namespace machine {

void barrier(unsigned line) { wait(AT_BARRIER, line); }

Lanes exchange(Bits own, unsigned line) {
    unsigned index = current->invocation.index, group = index / WIDTH, lane = index % WIDTH;
    Bits *all = &published[group][turns[group] * WIDTH];
    all[lane] = own;
    wait(IN_SIMDGROUP, line);
    return {all, Simdgroup(group).count, lane};
}

unsigned lane() { return current->invocation.index % WIDTH; }

template <class T> T atomic_load(NOT_KEPT const T *from) { return *from; }

template <class T> void atomic_store(NOT_KEPT T *to, T value) { *to = value; }

template <class T> T atomic_update(Update update, NOT_KEPT T *at, T value) {
    T old = *at;
    switch (update) {
    case Update::EXCHANGE: *at = value; break;
    case Update::ADD: *at = old + value; break;
    case Update::SUB: *at = old - value; break;
    case Update::MAX: *at = old < value ? value : old; break;
    case Update::MIN: *at = value < old ? value : old; break;
    default:
        if constexpr (std::is_integral<T>::value)
            *at = update == Update::OR ? old | value : update == Update::AND ? old & value : old ^ value;
    }
    return old;
}

#define ATOMICS(T) \
    template T atomic_load(NOT_KEPT const T *); \
    template void atomic_store(NOT_KEPT T *, T); \
    template T atomic_update(Update, NOT_KEPT T *, T);
ATOMICS(unsigned)
ATOMICS(int)
ATOMICS(float)

} // namespace machine
