// A machine for kernels: a process that holds buffers and runs dispatches as requested on its standard input.
//
// Every invocation is a fiber, which runs until it waits for others. All lanes of a simdgroup must reach the same call,
// and all invocations of a workgroup the same barrier; otherwise the process reports where each of them waits, and
// ends. Workgroup memory holds NaNs before it is written. After it, as after buffers, follows memory that the process
// may not access.
//
// Simdgroups run one after the other from barrier to barrier, so one that reads too early what a later one writes finds
// nothing. `-DBACKWARDS` reverses their order and that of workgroups, which detects the same in the other direction. A
// random order, with the seed MACHINE_ORDER, shows what both orders hide: there a simdgroup runs to the next function
// that its lanes call together, and then another one may be next.
//
// Functions whose results Metal specifies within bounds return the correctly rounded result or, depending on
// MACHINE_ERRORS, the lowest or the highest allowed one, or either of these by a hash of the seed and the exact value.
#include "machine.h"
#include <cfloat>
#include <cmath>
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

// The exit status after a fault.
constexpr int FAULT = 3;
constexpr size_t STACK = 128 << 10;
constexpr size_t PAGE = 64 << 10;
// Inaccessible memory on both sides of a buffer: enough for an index that belongs to another buffer.
constexpr size_t GUARD = 64 << 20;

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

// ---- what Metal does not determine

// A well mixed word, as splitmix64 makes it.
uint64_t mixed(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

enum class Order { Ascending, Descending, Random };
enum class Errors { None, Low, High, Either };

#ifdef BACKWARDS
Order order = Order::Descending;
#else
Order order = Order::Ascending;
#endif
uint64_t lots; // the state of random orders
Errors errors = Errors::None;
uint64_t errors_seed;

unsigned draw(unsigned below) { return mixed(lots += 0x9e3779b97f4a7c15) % below; }

// Lists the numbers below `count` in the order of execution.
void put_in_order(unsigned *to, unsigned count) {
    for (unsigned i = 0; i < count; i++) to[i] = order == Order::Descending ? count - 1 - i : i;
    for (unsigned i = count; order == Order::Random && i > 1; i--) std::swap(to[i - 1], to[draw(i)]);
}

void read_environment() {
    if (const char *seed = getenv("MACHINE_ORDER")) {
        order = Order::Random;
        lots = strtoull(seed, nullptr, 10);
    }
    if (const char *how = getenv("MACHINE_ERRORS")) {
        std::string word = how;
        errors = word == "low" ? Errors::Low : word == "high" ? Errors::High : Errors::Either;
        errors_seed = strtoull(how, nullptr, 10);
    }
}

// ---- fibers

void live() {
    for (;;) {
        running->run(current->invocation, buffers, arrays);
        wait(DONE, 0);
    }
}

// Starts a fiber on its own stack.
void begin(Fiber &fiber) {
    static ucontext_t start;
    fiber.begun = true;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks + STACK * fiber.invocation.index;
    start.uc_stack.ss_size = STACK;
    makecontext(&start, live, 0);
    setcontext(&start);
}

// Runs a fiber until it waits. Jumps avoid the system calls of context switches.
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

// Reports where each of them waits.
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

// Runs the lanes of a simdgroup until each of them waits. True if all wait for each other, and can continue.
bool advance(const Simdgroup &group) {
    unsigned lanes[WIDTH];
    put_in_order(lanes, group.count);
    for (unsigned i = 0; i < group.count; i++) {
        Fiber &fiber = fibers[group.first + lanes[i]];
        if (fiber.state == READY) resume(fiber);
    }
    unsigned together = group.waiting(IN_SIMDGROUP);
    if (together == 0) return false;
    const char *what = "the lanes of a simdgroup are not at the same call";
    if (together != group.count) stuck(what, group.first, group.count);
    same_line(what, group.first, group.count);
    turns[group.first / WIDTH] ^= 1;
    group.release();
    return true;
}

// Runs all simdgroups until their lanes are at a barrier or done.
void run_to_barrier() {
    std::vector<unsigned> left(simdgroups());
    put_in_order(left.data(), left.size());
    while (!left.empty()) {
        unsigned at = order == Order::Random ? draw(left.size()) : 0;
        if (!advance(Simdgroup(left[at]))) left.erase(left.begin() + at);
    }
}

void run_workgroup() {
    for (;;) {
        unsigned at_barrier = 0;
        run_to_barrier();
        for (unsigned g = 0; g < simdgroups(); g++) at_barrier += Simdgroup(g).waiting(AT_BARRIER);
        if (at_barrier == 0) return;
        const char *what = "the invocations of a workgroup are not at the same barrier";
        if (at_barrier != fibers.size()) stuck(what, 0, fibers.size());
        same_line(what, 0, fibers.size());
        for (auto &fiber : fibers) fiber.state = READY;
    }
}

// ---- memory

// Memory that ends, within 16 bytes, at inaccessible memory.
struct Region {
    char *whole = nullptr, *start = nullptr;
    size_t mapped = 0, bytes = 0;

    void make(size_t wanted) {
        bytes = wanted;
        size_t usable = (bytes + 15) / 16 * 16, pages = (usable + PAGE - 1) / PAGE * PAGE;
        mapped = GUARD + pages + GUARD;
        whole = (char *)mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (whole == MAP_FAILED) fault("no memory", nullptr);
        if (pages && mprotect(whole + GUARD, pages, PROT_READ | PROT_WRITE)) fault("no memory", nullptr);
        start = whole + GUARD + pages - usable;
    }
    void free() {
        if (whole) munmap(whole, mapped);
        whole = nullptr;
    }
};

void outside(int, siginfo_t *, void *) {
    fault("reads or writes outside its buffers and arrays, or where a vector may not lie", current);
}

// Reports a fault of memory, on a separate stack.
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
        std::vector<unsigned> workgroups(grid[0] * grid[1] * grid[2]);
        put_in_order(workgroups.data(), workgroups.size());
        for (unsigned w : workgroups) {
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

// ---- requests

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
    read_environment();
#ifdef FLUSH
    bool flush = true;
#else
    bool flush = errors != Errors::None;
#endif
#ifdef __SSE__
    if (flush) _mm_setcsr(_mm_getcsr() | 0x8040); // f32 too small to be normal are zero, as on Apple's GPUs
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

float within(double exact, double most) {
    if (errors == Errors::None || !std::isfinite(exact)) return (float)exact;
    uint64_t bits;
    memcpy(&bits, &exact, sizeof bits);
    bool up = errors == Errors::High || (errors == Errors::Either && mixed(bits ^ errors_seed) & 1);
    float given = (float)(exact + (up ? most : -most));
    if (std::fabs(given - exact) > most) given = std::nextafterf(given, (float)exact);
    return std::fabs(given) < FLT_MIN ? 0.0f : given;
}

float within_ulps(double exact, double ulps) {
    if (std::fabs(exact) < FLT_MIN) return errors == Errors::None ? (float)exact : 0.0f; // flushed
    int exponent;
    std::frexp(exact, &exponent);
    return within(exact, ulps * std::ldexp(1.0, exponent - FLT_MANT_DIG));
}

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

float machine_quotient(float a, float b) { return machine::within_ulps((double)a / b, a == 1 ? 1 : 2.5); }
