// <elinvar/resident> and <elinvar/queue>: inboxes of resident kernels, and message queues. The headers make these names those of namespace
// elinvar.
//
// The layouts are those of the runtime's `resident` folder.
#pragma once

extern "C" {
// A threadgroup barrier at which a resident kernel's threadgroup gives up its processor. `idle` is a constant: whether it has found nothing to
// do since the last call. A GPU sleeps for about `nanoseconds`.
ELINVAR_CONVERGENT __attribute__((nothrow, nomerge)) void __elinvar_yield(uint idle, uint nanoseconds);
}

namespace elinvar {
namespace resident {
using word = metal::_atomic<ulong>;
// Memory that the host writes too: volatile accesses have the scope of the system.
using host_word = volatile ulong;

ELINVAR_INLINE ulong load(host_word* from) { return __atomic_load_n(from, metal::memory_order_acquire); }
ELINVAR_INLINE void store(host_word* to, ulong value) { __atomic_store_n(to, value, metal::memory_order_release); }
} // namespace resident

namespace queue_names {
// A bounded queue with any number of producers and consumers (D. Vyukov's array queue). The slots follow the object. Slot i is free for
// message m, where m % capacity == i, if its sequence number is m - i, and has it if that is m - i + 1.
template <class T> struct queue {
    // Adds a message; returns false if the queue is full. Any thread may call it.
    ELINVAR_MEMBER bool try_push(T message) {
        ulong at;
        if (!claim(tail, 0, at)) return false;
        slot* to = slot_of(at);
        to->message = message;
        publish(to, at, 1);
        return true;
    }
    // Takes the oldest message; returns false if the queue is empty. Any thread may call it.
    ELINVAR_MEMBER bool try_pop(T& message) {
        ulong at;
        if (!claim(head, 1, at)) return false;
        slot* from = slot_of(at);
        message = from->message;
        publish(from, at, capacity);
        return true;
    }

    struct slot {
        resident::word sequence;
        T message;
    };

    resident::word tail;
    ulong unused0[7];
    resident::word head;
    ulong unused1[7];
    ulong capacity; // a power of two
    ulong unused2[7];

    ELINVAR_MEMBER slot* slot_of(ulong at) { return (slot*)(this + 1) + (at & (capacity - 1)); }
    // Takes the next number of `counter` whose slot's sequence number is ahead of it by `ahead`; false if that is not there yet.
    ELINVAR_MEMBER bool claim(resident::word& counter, ulong ahead, ulong& at) {
        at = metal::atomic_load_explicit(&counter, metal::memory_order_relaxed);
        for (;;) {
            ulong sequence = metal::atomic_load_explicit(&slot_of(at)->sequence, metal::memory_order_acquire);
            long distance = long(sequence + (at & (capacity - 1)) - at - ahead);
            if (distance < 0) return false;
            if (distance > 0) {
                at = metal::atomic_load_explicit(&counter, metal::memory_order_relaxed);
            } else if (metal::atomic_compare_exchange_weak_explicit(&counter, &at, at + 1, metal::memory_order_relaxed,
                                                                    metal::memory_order_relaxed)) {
                return true;
            }
        }
    }
    ELINVAR_MEMBER void publish(slot* to, ulong at, ulong ahead) {
        metal::atomic_store_explicit(&to->sequence, at - (at & (capacity - 1)) + ahead, metal::memory_order_release);
    }
};
} // namespace queue_names

namespace resident_names {
#define ELINVAR_GROUP_MEMBER ELINVAR_MEMBER ELINVAR_CONVERGENT

// The end of a ring of items, as an argument `constant elinvar::inbox<Item, Result>&`. A threadgroup receives an item as a whole: all its
// threads call each function together.
template <class Item, class Result = uint> struct inbox {
    static_assert(alignof(Item) <= 16 && alignof(Result) <= 16, "items and results are aligned to at most 16 bytes");

    // Waits for an item. Returns false when the host has stopped the kernel, which should then return. An item that was received before and
    // has not been completed is completed without a result.
    ELINVAR_GROUP_MEMBER bool receive(Item& item) const {
        __elinvar_yield(0, 0);
        if (is_first()) end(0);
        for (uint polls = 1;; ++polls) {
            if (is_first()) claim();
            metal::threadgroup_barrier(metal::mem_flags::mem_device);
            ulong number = *place();
            if (number == stopped) return false;
            if (number != none) {
                item = *(const Item*)(slot(number - 1) + 16);
                return true;
            }
            __elinvar_yield(1, pause(polls));
        }
    }
    // The item's number, from 0, between `receive` and `complete`.
    ELINVAR_MEMBER ulong number() const { return *place() - 1; }
    // Completes the item. What all threads of the threadgroup have written is visible to the host, and to launches that the host submits, when
    // it has seen the completion. The result is that of the threadgroup's first thread.
    ELINVAR_GROUP_MEMBER void complete(Result result) const {
        metal::threadgroup_barrier(metal::mem_flags::mem_device);
        if (is_first()) end(&result);
    }
    ELINVAR_GROUP_MEMBER void complete() const {
        metal::threadgroup_barrier(metal::mem_flags::mem_device);
        if (is_first()) end(0);
    }

    // Adds the first thread's message to a queue, and waits while it is full. Returns false, without an effect, if the host has stopped the
    // kernel and the queue is full.
    template <class T> ELINVAR_GROUP_MEMBER bool push(queue_names::queue<T>& to, T message) const {
        __elinvar_yield(0, 0);
        for (uint polls = 1;; ++polls) {
            if (is_first()) {
                bool stops = resident::load((resident::host_word*)ring) != 0;
                ulong at;
                ulong state = none;
                if (to.claim(to.tail, 0, at)) {
                    to.slot_of(at)->message = message;
                    to.publish(to.slot_of(at), at, 1);
                    state = taken;
                } else if (stops) {
                    state = stopped;
                }
                *transfer() = state;
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_device);
            ulong state = *transfer();
            if (state != none) return state == taken;
            __elinvar_yield(1, pause(polls));
        }
    }
    // Takes the oldest message of a queue, which all threads of the threadgroup receive, and waits while it is empty. Returns false if the
    // host has stopped the kernel and the queue is empty.
    template <class T> ELINVAR_GROUP_MEMBER bool pop(queue_names::queue<T>& from, T& message) const {
        __elinvar_yield(0, 0);
        for (uint polls = 1;; ++polls) {
            if (is_first()) {
                bool stops = resident::load((resident::host_word*)ring) != 0;
                ulong at;
                *transfer() = from.claim(from.head, 1, at) ? at + 1 : stops ? stopped : none;
            }
            metal::threadgroup_barrier(metal::mem_flags::mem_device);
            ulong state = *transfer();
            if (state == stopped) return false;
            if (state != none) {
                message = from.slot_of(state - 1)->message;
                metal::threadgroup_barrier(metal::mem_flags::mem_device);
                if (is_first()) from.publish(from.slot_of(state - 1), state - 1, from.capacity);
                return true;
            }
            __elinvar_yield(1, pause(polls));
        }
    }

    ulong ring;   // memory that the host shares: whether the kernel stops, and from byte 128 on the slots
    ulong claims; // memory of the device: the number of the next item, and from byte 64 on 64 bytes for each threadgroup
    uint mask;    // number of slots - 1
    uint stride;  // distance of slots in bytes
    uint awake;   // number of polls before a GPU sleeps between them
    uint results; // offset of the result in a slot

private:
    static constexpr ulong none = 0, taken = ~0ul - 1, stopped = ~0ul;
    static constexpr ulong item_kind = 1, discarded_kind = 2, stop_kind = 3;

    ELINVAR_MEMBER static bool is_first() { return attribute::thread_index_in_threadgroup::at(0) == 0; }
    ELINVAR_MEMBER static uint group() {
        return __elinvar_threadgroup_position_in_grid(0) +
               __elinvar_threadgroups_per_grid(0) *
                   (__elinvar_threadgroup_position_in_grid(1) +
                    __elinvar_threadgroups_per_grid(1) * __elinvar_threadgroup_position_in_grid(2));
    }
    ELINVAR_MEMBER uint pause(uint polls) const {
        return polls <= awake ? 0 : metal::min(polls - awake, 160u) * 128;
    }
    // The number of the threadgroup's item, from 1.
    ELINVAR_MEMBER ulong* place() const { return (ulong*)(claims + 64 + 64 * ulong(group())); }
    // The same for what it moves to or from a queue.
    ELINVAR_MEMBER ulong* transfer() const { return place() + 1; }
    ELINVAR_MEMBER uchar* slot(ulong number) const { return (uchar*)ring + 128 + (number & mask) * stride; }
    ELINVAR_MEMBER void claim() const {
        resident::word* next = (resident::word*)claims;
        ulong number = metal::atomic_load_explicit(next, metal::memory_order_relaxed);
        resident::host_word* words = (resident::host_word*)slot(number);
        ulong ready = resident::load(words);
        ulong result = none;
        if (ready >> 2 == number + 1) {
            if ((ready & 3) == stop_kind) {
                result = stopped;
            } else if (metal::atomic_compare_exchange_strong_explicit(next, &number, number + 1, metal::memory_order_relaxed,
                                                                      metal::memory_order_relaxed)) {
                bool is_item = (ready & 3) == item_kind;
                __atomic_store_n(words + 1, (number + 1) << 2 | (is_item ? 0 : discarded_kind), metal::memory_order_relaxed);
                if (is_item) result = number + 1;
            }
        }
        *place() = result;
    }
    ELINVAR_MEMBER void end(const Result* result) const {
        ulong number = *place();
        if (number == none || number == stopped) return;
        uchar* at = slot(number - 1);
        if (result) *(Result*)(at + results) = *result;
        resident::store((resident::host_word*)at + 1, number << 2 | item_kind);
        *place() = none;
    }
};
#undef ELINVAR_GROUP_MEMBER
} // namespace resident_names

// Their forms have the sizes of what they take: see `description`.
template <class Item, class Result> struct element_form<resident_names::inbox<Item, Result>> {
    using scalar = void;
    static constexpr ulong form = 3 | sizeof(Item) << 8 | sizeof(Result) << 32;
};
template <class T> struct element_form<queue_names::queue<T>> {
    using scalar = void;
    static constexpr ulong form = 4 | sizeof(T) << 8 | sizeof(typename queue_names::queue<T>::slot) << 32;
};
} // namespace elinvar
