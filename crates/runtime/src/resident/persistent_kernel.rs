//! [`PersistentKernel`]: starting a resident kernel, submitting items, and stopping it.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytemuck::Pod;
use elinvar_driver::sync::{Mutex, OnceLock};
use elinvar_driver::{
    Callback, Dim3, Doorbell, ElementType, Error, Fault, PerProcess, Priority, ResidentThreads, Result,
    Storage,
};

use super::ring::{Ring, State};
use super::ticket::Ticket;
use crate::launch::args::{ArgList, Element, Value};
use crate::{Arg, Args, Buffer, Completion, Extent, Grid, Kernel, Stream};

/// Time of a poll of a GPU's threadgroup, approximately.
const POLL: Duration = Duration::from_micros(2);
/// Longest sleep of a kernel with queues on a CPU.
const NAP: Duration = Duration::from_millis(1);
/// Largest capacity of a ring.
const MOST: usize = 1 << 20;

/// Size and times of a resident kernel.
#[derive(Clone, Debug)]
pub struct Residency {
    groups: u32,
    group: [i128; 3],
    capacity: usize,
    sleep_after: Duration,
    deadline: Duration,
}

impl Residency {
    /// `groups` threadgroups of `group` threads. On the CPU they share as many threads of their own as the device has workers.
    pub fn new(groups: u32, group: impl Extent) -> Self {
        let (sleep_after, deadline) = (Duration::from_micros(200), Duration::from_secs(10));
        Self { groups, group: group.sizes(), capacity: 64, sleep_after, deadline }
    }

    /// Maximum number of items that are not complete, from 1 to 2²⁰; 64 by default.
    #[must_use]
    pub fn capacity(self, capacity: usize) -> Self {
        Self { capacity, ..self }
    }

    /// How long a kernel without items looks for one before it sleeps; 200 µs by default. On the CPU its threads then sleep until an item is
    /// submitted; on a GPU threadgroups sleep for up to 20 µs between polls, and the time is approximate.
    #[must_use]
    pub fn sleep_after(self, sleep_after: Duration) -> Self {
        Self { sleep_after, ..self }
    }

    /// Maximum time from the submission of an item to its completion; 10 s by default. It also limits how long a submission waits for room
    /// and how long the kernel may take to stop.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }
}

/// A kernel that runs until it is stopped, and receives items of type `I` from a ring. Items are taken in the order of submission, each by
/// one threadgroup, and completed with results of type `R`.
///
/// The kernel has a parameter `constant elinvar::inbox<I, R>&`, which no argument is given for:
///
/// ```
/// use elinvar::{Device, PersistentKernel, Residency, Source};
///
/// # fn main() -> elinvar::Result<()> {
/// let device = Device::cpu()?;
/// let kernel = device
///     .compile(Source::msl(
///         "#include <elinvar/resident>
///          kernel void square(constant elinvar::inbox<uint, uint>& inbox) {
///              uint item;
///              while (inbox.receive(item)) inbox.complete(item * item);
///          }",
///     ))?
///     .kernel("square")?;
/// // SAFETY: the kernel accesses its inbox only.
/// let squares = unsafe { PersistentKernel::<u32, u32>::start(&kernel, Residency::new(1, 32), ()) }?;
/// let tickets: Vec<_> = (0..100).map(|i| squares.submit(&i)).collect::<elinvar::Result<_>>()?;
/// for (i, ticket) in tickets.into_iter().enumerate() {
///     assert_eq!(ticket.wait()?, (i * i) as u32);
/// }
/// squares.finish()?;
/// # Ok(())
/// # }
/// ```
///
/// Dropping it stops the kernel as [`PersistentKernel::stop`] does. Until the kernel has ended, its buffers are in use: the host's access to them
/// waits, and so does the memory that it holds.
pub struct PersistentKernel<I, R> {
    shared: Arc<Shared>,
    types: PhantomData<fn(I) -> R>,
}

/// What the handle shares with tickets.
pub(super) struct Shared {
    pub(super) name: String,
    pub(super) deadline: Duration,
    capacity: u64,
    ring: Ring,
    host: Mutex<Host>,
    doorbell: Arc<Doorbell>,
    completion: Completion,
    /// The first failure that the host has found.
    failure: OnceLock<Error>,
    _claims: Buffer<u8>,
}

struct Host {
    /// Number of the next item.
    next: u64,
    /// The first item that is not known to be complete.
    oldest: u64,
    /// Whether the item in each slot has a ticket.
    has_ticket: Vec<bool>,
    /// Results of items with tickets whose slots were used again; `None` for a discarded item.
    retired: HashMap<u64, Option<Vec<u8>>>,
    is_stopping: bool,
}

/// How a kernel's threads sleep. Kernels that share queues wake one another; an ordinary launch that adds a message wakes nobody.
fn threads(args: &[elinvar_driver::Arg], sleep_after: Duration) -> ResidentThreads {
    static QUEUES: PerProcess<Arc<Doorbell>> = PerProcess::new(Arc::default);
    match args.iter().any(|arg| matches!(arg.element, ElementType::Queue { .. })) {
        true => ResidentThreads { doorbell: QUEUES.get().clone(), sleep_after, longest_sleep: Some(NAP) },
        false => ResidentThreads { sleep_after, ..ResidentThreads::default() },
    }
}

impl<I: Pod, R: Pod> PersistentKernel<I, R> {
    /// Starts a kernel. `args` are its arguments without the inbox.
    ///
    /// # Safety
    /// As [`Kernel::launch`], for all items that are submitted.
    ///
    /// # Errors
    /// `InvalidArgument` if the kernel has no inbox, or one of items or results of other sizes, if it has a grid barrier, for a size that is
    /// out of range, with the largest number of threadgroups that are resident at once, and as [`Kernel::launch`]; `Unsupported` with the
    /// reason on a device without resident kernels.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn start(kernel: &Kernel, residency: Residency, args: impl Args) -> Result<Self> {
        let signature = kernel.signature();
        let name = signature.name.clone();
        let refuse = |why: String| Err(Error::invalid(format!("kernel `{name}`: {why}")));
        let Some(index) = signature.inbox() else {
            return refuse(
                "it has no inbox; a resident kernel has an argument `constant elinvar::inbox<Item, Result>&`"
                    .into(),
            );
        };
        let sizes = [size_of::<I>() as u64, size_of::<R>() as u64];
        match signature.args[index].element {
            ElementType::Inbox { item, result } if [item, result] != sizes => {
                let [ours, theirs] = sizes;
                return refuse(format!(
                    "its inbox has items of {item} bytes and results of {result}, given types of {ours} and {theirs} bytes"
                ));
            }
            _ => {}
        }
        if signature.is_cooperative() {
            return refuse("a resident kernel cannot have a grid barrier".into());
        }
        let Residency { groups, group, capacity, sleep_after, deadline } = residency;
        if capacity == 0 || capacity > MOST {
            return refuse(format!("a ring for {capacity} items: 1 to {MOST} allowed"));
        }
        let device = kernel.device().clone();
        let threads = threads(&signature.args, sleep_after);
        let doorbell = threads.doorbell.clone();
        let queue = device.driver().resident_queue(threads)?;
        let size = crate::launch::grid::checked(&name, "threadgroup", group)?;
        let mut list = args.into_args();
        let dynamic = list.iter().map(|arg| match arg.value {
            Value::Threadgroup(bytes) => bytes.next_multiple_of(16),
            _ => 0,
        });
        let most = kernel.resident_groups(size, dynamic.sum())?;
        if groups == 0 || u64::from(groups) > most {
            return refuse(format!("{groups} resident threadgroups of {size} threads: 1 to {most} allowed"));
        }
        let slots = (2 * capacity).next_power_of_two() as u64;
        let (results, stride) = Ring::layout(size_of::<I>(), size_of::<R>());
        let memory = device.buffer_in::<u8>(Ring::bytes(slots, stride), Storage::Shared)?;
        let mut claims = device.buffer_in::<u8>(64 + 64 * groups as usize, Storage::Private)?;
        let mut ring = Ring::new(memory, slots, (size_of::<I>(), size_of::<R>()))?;
        let awake = (sleep_after.as_nanos() / POLL.as_nanos()).min(u128::from(u32::MAX)) as u32;
        let inbox = [ring.memory.gpu_address()?, claims.gpu_address()?]
            .map(u64::to_ne_bytes)
            .concat()
            .into_iter()
            .chain(
                [slots as u32 - 1, stride as u32, awake, results as u32]
                    .into_iter()
                    .flat_map(u32::to_ne_bytes),
            )
            .collect();
        let given = index.min(list.len());
        list.insert(given, Arg { value: Value::Bytes { bytes: inbox, element: Element::Inbox } });
        list.push(Arg::use_resource(&mut ring.memory));
        list.push(Arg::use_resource(&mut claims));
        let completion = launch(kernel, Stream::new(device, queue, Priority::Normal), groups, size, list)?;
        let host = Host {
            next: 0,
            oldest: 0,
            has_ticket: vec![false; slots as usize],
            retired: HashMap::new(),
            is_stopping: false,
        };
        let shared = Shared {
            name,
            deadline,
            capacity: capacity as u64,
            ring,
            host: Mutex::new(host),
            doorbell,
            completion,
            failure: OnceLock::new(),
            _claims: claims,
        };
        Ok(Self { shared: Arc::new(shared), types: PhantomData })
    }

    /// Submits an item unless the ring is full, which is `None`.
    ///
    /// # Errors
    /// The error in which the kernel has ended, with the items that it was processing.
    pub fn try_submit(&self, item: &I) -> Result<Option<Ticket<R>>> {
        let number = self.shared.submit(bytemuck::bytes_of(item))?;
        let (shared, result, submitted) = (self.shared.clone(), PhantomData, Instant::now());
        Ok(number.map(|number| Ticket { shared, number, submitted, is_awaited: false, result }))
    }

    /// Submits an item. Waits while the ring is full, for at most the kernel's deadline.
    ///
    /// # Errors
    /// As [`PersistentKernel::try_submit`]; `Timeout` as [`Ticket::wait`]; `WouldDeadlock` in a callback if the ring is full.
    pub fn submit(&self, item: &I) -> Result<Ticket<R>> {
        let begin = Instant::now();
        loop {
            if let Some(ticket) = self.try_submit(item)? {
                return Ok(ticket);
            }
            Callback::expect_none("PersistentKernel::submit")?;
            if begin.elapsed() > self.shared.deadline {
                return Err(self.shared.hang(self.shared.host.lock().oldest));
            }
            std::thread::yield_now();
        }
    }

    /// Number of items that are not complete.
    pub fn pending(&self) -> u64 {
        self.shared.pending()
    }

    /// Stops the kernel behind all submitted items, and waits for its end.
    ///
    /// # Errors
    /// The error in which the kernel has ended; `Timeout` as [`Ticket::wait`].
    pub fn finish(self) -> Result<()> {
        self.shared.end(false)
    }

    /// Stops the kernel behind the items that it has taken, and waits for its end. Others end in `Cancelled`.
    ///
    /// # Errors
    /// As [`PersistentKernel::finish`].
    pub fn stop(self) -> Result<()> {
        self.shared.end(true)
    }
}

#[allow(unsafe_code)] // launches
fn launch(kernel: &Kernel, stream: Stream, groups: u32, size: Dim3, args: ArgList) -> Result<Completion> {
    // Stoppable code ends at the deadline within an item.
    let pipeline = kernel.pipeline.stoppable().unwrap_or_else(|| kernel.pipeline.clone());
    let kernel = Kernel { pipeline, ..kernel.clone() };
    let mut commands = stream.command_buffer();
    // SAFETY: the caller of `start` vouches for it; the inbox is as the header describes it.
    unsafe { commands.launch(&kernel, Grid::groups(groups).group(size), args) }?;
    commands.submit()
}

impl Shared {
    /// Whether the kernel has ended or failed: it completes nothing any more.
    fn has_ended(&self) -> bool {
        self.completion.is_done() || self.failure.get().is_some()
    }

    /// Whether an item may have ended, without the lock.
    pub(super) fn may_be_over(&self, number: u64) -> bool {
        !self.ring.state(number).is_pending() || self.has_ended()
    }

    fn advance(&self, host: &mut Host) {
        while host.oldest < host.next && !self.ring.state(host.oldest).is_pending() {
            host.oldest += 1;
        }
    }

    /// Number of items that are not complete.
    fn pending(&self) -> u64 {
        let mut host = self.host.lock();
        self.advance(&mut host);
        host.next - host.oldest
    }

    /// Keeps the result of the item whose slot is to be used again.
    fn retire(&self, host: &mut Host, number: u64) {
        let slot = (number % self.ring.slots) as usize;
        if std::mem::take(&mut host.has_ticket[slot]) {
            let before = number - self.ring.slots;
            let result = (self.ring.state(before) == State::Completed).then(|| self.ring.result(before));
            host.retired.insert(before, result);
        }
    }

    fn submit(&self, item: &[u8]) -> Result<Option<u64>> {
        let mut host = self.host.lock();
        if self.has_ended() {
            return Err(self.ended(&host, host.next));
        }
        if host.is_stopping {
            return Err(Error::invalid(format!(
                "kernel `{}`: an item for a kernel that was stopped",
                self.name
            )));
        }
        if host.next - host.oldest >= self.capacity {
            self.advance(&mut host);
            if host.next - host.oldest >= self.capacity {
                return Ok(None);
            }
        }
        let number = host.next;
        self.retire(&mut host, number);
        host.has_ticket[(number % self.ring.slots) as usize] = true;
        self.ring.publish(number, item);
        host.next += 1;
        drop(host);
        self.doorbell.ring();
        Ok(Some(number))
    }

    /// The result of an item, if it is complete.
    pub(super) fn poll(&self, number: u64) -> Result<Option<Vec<u8>>> {
        // Read before the state.
        let is_over = self.has_ended();
        let host = self.host.lock();
        let cancelled = || Err(Error::Cancelled);
        if let Some(result) = host.retired.get(&number) {
            return result.clone().map_or_else(cancelled, |result| Ok(Some(result)));
        }
        match self.ring.state(number) {
            State::Completed => Ok(Some(self.ring.result(number))),
            State::Discarded | State::Replaced => cancelled(),
            State::Queued | State::Taken if is_over => Err(self.ended(&host, number)),
            State::Queued | State::Taken => Ok(None),
        }
    }

    /// Drops what is kept for a ticket.
    pub(super) fn forget(&self, number: u64) {
        let mut host = self.host.lock();
        if host.retired.remove(&number).is_none() && host.next <= number + self.ring.slots {
            host.has_ticket[(number % self.ring.slots) as usize] = false;
        }
    }

    /// The items that the kernel has taken and not completed, as text.
    fn taken(&self, host: &Host) -> String {
        let taken = (host.oldest..host.next).filter(|number| self.ring.state(*number) == State::Taken);
        let numbers: Vec<String> = taken.take(8).map(|number| number.to_string()).collect();
        match numbers.len() {
            0 => "between items".into(),
            1 => format!("while it processed item {}", numbers[0]),
            _ => format!("while it processed items {}", numbers.join(", ")),
        }
    }

    /// The error of an item that a kernel that has ended has not completed.
    fn ended(&self, host: &Host, number: u64) -> Error {
        if let Some(failure) = self.failure.get() {
            return failure.clone();
        }
        match self.completion.wait_timeout(Duration::ZERO) {
            Err(Error::Fault(Fault { kernel, message, location, launch })) => {
                let message = format!("{message}, {}", self.taken(host));
                Error::Fault(Fault { kernel, message, location, launch })
            }
            Err(Error::DeviceLost(why)) => {
                Error::DeviceLost(format!("{why}; kernel `{}` was lost {}", self.name, self.taken(host)))
            }
            Err(error) => error,
            Ok(_) => {
                let message = format!("the kernel has returned without completing item {number}");
                Error::Fault(Fault { kernel: self.name.clone(), message, location: None, launch: None })
            }
        }
    }

    /// Ends a kernel that has exceeded its deadline for an item, where the device can.
    pub(super) fn hang(&self, number: u64) -> Error {
        let cause = {
            let host = self.host.lock();
            let (name, deadline, taken) = (&self.name, self.deadline, self.taken(&host));
            Error::Timeout(format!(
                "kernel `{name}`: item {number} is not complete after {deadline:?}, {taken}"
            ))
        };
        let cause = self.failure.get_or_init(|| cause).clone();
        // A device that cannot stop running work leaves the kernel as it is.
        let _unsupported = self.completion.stop(&cause);
        cause
    }

    /// Stops the kernel and waits for its end.
    fn end(&self, discards: bool) -> Result<()> {
        {
            let mut host = self.host.lock();
            if !std::mem::replace(&mut host.is_stopping, true) {
                self.advance(&mut host);
                if discards {
                    (host.oldest..host.next).for_each(|number| self.ring.discard(number));
                }
                let number = host.next;
                self.retire(&mut host, number);
                self.ring.stop(number);
            }
        }
        if let Some(failure) = self.failure.get() {
            return Err(failure.clone());
        }
        self.doorbell.ring();
        // An item under way may wait for room in a queue.
        let begin = Instant::now();
        while !discards && !self.completion.is_done() && self.pending() > 0 && begin.elapsed() < self.deadline
        {
            std::thread::sleep(Duration::from_micros(20));
        }
        self.ring.stop_waits();
        self.doorbell.ring();
        match self.completion.wait_timeout(self.deadline) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(self.hang(self.host.lock().oldest)),
            Err(_) => {
                let host = self.host.lock();
                Err(self.ended(&host, host.oldest))
            }
        }
    }
}

impl<I, R> Drop for PersistentKernel<I, R> {
    fn drop(&mut self) {
        let _reported = self.shared.end(true);
    }
}

impl<I, R> fmt::Debug for PersistentKernel<I, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PersistentKernel({})", self.shared.name)
    }
}
