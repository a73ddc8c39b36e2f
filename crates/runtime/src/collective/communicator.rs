//! [`Communicator`]: a group of devices that compute together.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use elinvar_collective::{Environment, Mpi, Network, Ring, Supervised, ring, ring_on};
use elinvar_driver::{Aborter, CollectiveCall, Error, Result, Scalar};

use super::operation::Operation;
use super::thread::{Facts, Job, Pending, Run, start};
use crate::memory::usage::{Access, Storage, Usage, Who, commit};
use crate::sync::completion::Promise;
use crate::{CommandBuffer, Completion, Device, DeviceKind, Stream};

/// Time without progress after which an operation fails, unless set otherwise.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Number of communicators of processes that this process has created.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// What connects the members of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Transport {
    /// Shared memory, in one process or between processes of one machine. For devices of any kind; the host copies what it does not see.
    Ring,
    /// NVIDIA's library, for different NVIDIA GPUs.
    Nccl,
    /// Open MPI or MPICH, between the processes of `mpirun`, on one or several machines. The host copies what it does not see. Cannot be shrunk.
    Mpi,
}

/// One member of a group of devices that compute together. A clone is another handle on the same member.
///
/// Operations of a member run one after the other, in the order in which they are submitted, which must be the same for all members. When a member
/// fails or does not take part in time, the operations of all members end in [`Error::RankFailed`], which names it; [`Communicator::shrink`] goes on without it.
#[derive(Clone)]
pub struct Communicator {
    inner: Arc<Inner>,
}

struct Inner {
    device: Device,
    rank: u32,
    size: u32,
    engine: &'static str,
    cannot_reduce: &'static [Scalar],
    aborter: Arc<dyn Aborter>,
    jobs: Sender<Job>,
    /// In nanoseconds.
    timeout: AtomicU64,
    /// Its number is that of the operations in usage records.
    stream: Stream,
    /// Simulated seconds, as bits, on a simulated network.
    clock: Option<Arc<AtomicU64>>,
}

impl Communicator {
    /// A communicator of devices of this process, which may be the same; a member for each, by rank. NVIDIA GPUs use NCCL where it is installed, all others
    /// shared memory. If `ELINVAR_NETWORK` names a file, CPU devices simulate the network that it describes, as [`Communicator::all_on`].
    ///
    /// # Errors
    /// `InvalidArgument` without or with more than 1024 devices, or for a wrong description of a network; `Environment` if its file cannot be read; the
    /// driver's.
    pub fn all(devices: &[Device]) -> Result<Vec<Self>> {
        let network = std::env::var_os("ELINVAR_NETWORK").filter(|path| !path.is_empty());
        if let Some(path) = network.filter(|_| devices.iter().all(|device| device.kind() == DeviceKind::Cpu))
        {
            let failed = |error| Error::Environment(format!("ELINVAR_NETWORK={}: {error}", path.display()));
            let text = std::fs::read_to_string(&path).map_err(failed)?;
            return Self::all_on(devices, Network::parse(&text)?);
        }
        let distinct = devices.iter().enumerate().all(|(at, device)| !devices[..at].contains(device));
        let nccl = distinct && devices.iter().all(|device| device.driver().collectives().is_ok());
        Self::all_with(devices, if nccl && !devices.is_empty() { Transport::Nccl } else { Transport::Ring })
    }

    /// A communicator over shared memory that also simulates the time of its operations on a network, by rank ([`Communicator::simulated_time`]).
    ///
    /// # Errors
    /// As [`Communicator::all`].
    pub fn all_on(devices: &[Device], network: Network) -> Result<Vec<Self>> {
        let members = ring_on(devices.len() as u32, Some(Arc::new(network)))?;
        let member = |(member, device): (Ring, &Device)| {
            let clock = member.clock();
            let pending = start(device, move || Ok(Box::new(member) as _));
            Self::new(device, pending, Some(clock))
        };
        members.into_iter().zip(devices).map(member).collect()
    }

    /// As [`Communicator::all`], with an engine.
    ///
    /// # Errors
    /// As [`Communicator::all`]; `Unsupported` with the reason if the engine is not available for the devices.
    pub fn all_with(devices: &[Device], engine: Transport) -> Result<Vec<Self>> {
        let size = devices.len() as u32;
        let pending: Vec<Pending> = match engine {
            Transport::Ring => {
                let members = ring(size)?.into_iter().zip(devices);
                members.map(|(member, device)| start(device, move || Ok(Box::new(member) as _))).collect()
            }
            Transport::Mpi => {
                return Err(Error::unsupported("MPI connects processes: `Communicator::world_with`"));
            }
            Transport::Nccl => {
                let libraries = devices.iter().map(|device| device.driver().collectives());
                let libraries = libraries.collect::<Result<Vec<_>>>()?;
                // Each join waits for the others.
                let each = ring(size)?.into_iter().zip(libraries).zip(devices);
                let join = |((ring, library), device): ((Ring, _), &Device)| {
                    start(device, move || Ok(Box::new(Supervised::join(ring, library, TIMEOUT)?) as _))
                };
                each.map(join).collect()
            }
        };
        let made: Vec<_> = pending
            .into_iter()
            .zip(devices)
            .map(|(pending, device)| Self::new(device, pending, None))
            .collect();
        made.into_iter().collect()
    }

    /// The communicator of the processes that a launcher has started, each with a device: `elinvar launch`, `mpirun`, `torchrun` or `srun`.
    /// NVIDIA GPUs use NCCL, other devices shared memory, and MPI on several machines; `ELINVAR_COLLECTIVES` (`ring`, `nccl`, `mpi`) selects an engine.
    /// Every process calls it, and creates its communicators in the same order. Waits for all of them. `None` if no launcher has started the process.
    ///
    /// # Errors
    /// `RankFailed` if a process has ended or does not come in time; `InvalidArgument` for an environment that makes no sense; `Unsupported` if the
    /// launcher does not tell which job it is.
    pub fn world(device: &Device) -> Result<Option<Self>> {
        let Some(environment) = Environment::read()? else { return Ok(None) };
        let engine = match std::env::var("ELINVAR_COLLECTIVES").as_deref() {
            Ok("ring") => Transport::Ring,
            Ok("nccl") => Transport::Nccl,
            Ok("mpi") => Transport::Mpi,
            Ok("") | Err(_) => Self::engine_for(device, &environment),
            Ok(other) => {
                return Err(Error::invalid(format!(
                    "ELINVAR_COLLECTIVES={other}: expected ring, nccl or mpi"
                )));
            }
        };
        Self::world_with(device, &environment, engine).map(Some)
    }

    /// NCCL for GPUs, and otherwise shared memory on one machine, and MPI on several.
    fn engine_for(device: &Device, environment: &Environment) -> Transport {
        match environment.local_size {
            Some(local) if local != environment.size => Transport::Mpi,
            // MPICH's launcher does not tell which job it is.
            _ if environment.launcher == "mpiexec" && environment.job.is_empty() => Transport::Mpi,
            _ if device.driver().collectives().is_ok() => Transport::Nccl,
            _ => Transport::Ring,
        }
    }

    /// As [`Communicator::world`], with an engine.
    ///
    /// # Errors
    /// As [`Communicator::world`], and `Unsupported` with the reason if the engine is not available for the device.
    pub fn world_with(device: &Device, environment: &Environment, engine: Transport) -> Result<Self> {
        let Environment { rank, size, job, launcher, .. } = environment.clone();
        if engine == Transport::Mpi {
            let member = Self::new(device, start(device, || Ok(Box::new(Mpi::join()?) as _)), None)?;
            if (member.rank(), member.size()) != (rank, size) {
                return Err(Error::unsupported(format!(
                    "MPI: its library tells rank {} of {}, and {launcher} rank {rank} of {size}: it is not the library of this launcher",
                    member.rank(),
                    member.size()
                )));
            }
            return Ok(member);
        }
        if job.is_empty() {
            return Err(Error::unsupported(format!(
                "{launcher} does not tell which job this process belongs to"
            )));
        }
        let path = segment_path(&job, NEXT.fetch_add(1, Ordering::Relaxed));
        let library = (engine == Transport::Nccl).then(|| device.driver().collectives()).transpose()?;
        let pending = start(device, move || {
            let ring = Ring::join(&path, rank, size, TIMEOUT)?;
            match library {
                Some(library) => Ok(Box::new(Supervised::join(ring, library, TIMEOUT)?) as _),
                None => Ok(Box::new(ring) as _),
            }
        });
        Self::new(device, pending, None)
    }

    pub(super) fn new(device: &Device, pending: Pending, clock: Option<Arc<AtomicU64>>) -> Result<Self> {
        let (jobs, facts) = pending.wait()?;
        let Facts { rank, size, engine, cannot_reduce, aborter } = facts;
        let (device, stream, timeout) =
            (device.clone(), device.stream()?, AtomicU64::new(TIMEOUT.as_nanos() as u64));
        let inner =
            Inner { device, rank, size, engine, cannot_reduce, aborter, jobs, timeout, stream, clock };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The member's device.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// The member's rank, from 0.
    pub fn rank(&self) -> u32 {
        self.inner.rank
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.inner.size
    }

    /// Name of the engine.
    pub fn engine(&self) -> &'static str {
        self.inner.engine
    }

    /// Simulated time at which this member's last operation has ended, since the communicator began; `None` without a simulated network.
    pub fn simulated_time(&self) -> Option<Duration> {
        let clock = self.inner.clock.as_ref()?;
        let seconds = f64::from_bits(clock.load(Ordering::Relaxed));
        Duration::try_from_secs_f64(seconds).ok()
    }

    /// Sets how long an operation of this member may make no progress, from its begin on; 60 seconds by default. It then fails, with the rank for
    /// which it has waited. The time includes that in which other members run the work before their operation.
    pub fn set_timeout(&self, timeout: Duration) {
        let ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        self.inner.timeout.store(ns, Ordering::Relaxed);
    }

    /// Ends the operations of all members, as a failure of this one.
    pub fn abort(&self, reason: &str) {
        self.inner.aborter.abort(self.inner.rank, reason);
    }

    /// A communicator of the members that call this, without the one that has failed. Ranks keep their order. Waits for the others, for at most `timeout`;
    /// members that have not called it by then are left out.
    ///
    /// # Errors
    /// `RankFailed` with this rank if the others have gone on without it; `Unsupported` with the reason if the engine cannot.
    pub fn shrink(&self, timeout: Duration) -> Result<Self> {
        let (answer, member) = channel();
        let gone = || Error::Environment("the thread of a member has ended".into());
        self.inner.jobs.send(Job::Shrink { timeout, answer }).map_err(|_| gone())?;
        let member = member.recv().map_err(|_| gone())??;
        let pending = start(&self.inner.device, move || Ok(member));
        let next = Self::new(&self.inner.device, pending, self.inner.clock.clone())?;
        next.inner.timeout.store(self.inner.timeout.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(next)
    }

    /// Checks an operation.
    pub(super) fn call(&self, operation: &mut Operation<'_>) -> Result<CollectiveCall> {
        let (device, name) = (&self.inner.device, operation.collective.name());
        let (element, element_size, count) = operation.resolve(self.rank(), self.size())?;
        if let Some(element) = element.filter(|element| self.inner.cannot_reduce.contains(element))
            && operation.collective.reduction().is_some()
        {
            let engine = self.engine().to_uppercase();
            return Err(Error::unsupported(format!(
                "{name}: {engine} has no reductions of {}",
                element.msl_name()
            )));
        }
        for span in [&operation.source, &operation.target].into_iter().flatten() {
            device.expect_same(&span.storage.device, || format!("{name}: a buffer is"))?;
        }
        let [source, target] =
            [&operation.source, &operation.target].map(|span| span.as_ref().map(|s| s.memory_slice()));
        let timeout = Duration::from_nanos(self.inner.timeout.load(Ordering::Relaxed));
        let collective = operation.collective;
        Ok(CollectiveCall { collective, element, element_size, count, source, target, timeout })
    }

    /// Adds an operation to a command buffer.
    fn add(&self, commands: &mut CommandBuffer, mut operation: Operation<'_>) -> Result<()> {
        let (device, name) = (&self.inner.device, operation.collective.name());
        commands.device().expect_same(device, || format!("{name}: the communicator is"))?;
        let call = self.call(&mut operation)?;
        let mut usages = crate::memory::usage::Usages::new();
        for (span, access) in [(&operation.source, Access::Read), (&operation.target, Access::Write)] {
            let Some(span) = span else { continue };
            let (storage, covers) = (span.storage.clone(), span.covers_storage());
            usages.push(Usage { storage, who: Who::Operation(name), access, covers });
        }
        let (ready, done) = (device.event()?, device.event()?);
        commands.signal(&ready, 1);
        commands.wait_for(&done, 1);
        let inner = self.inner.clone();
        commands.accompany(Box::new(move |_: &Completion| inner.submit(call, usages, ready, done)));
        Ok(())
    }

    /// Passes an operation of a graph to the thread, whose memory the graph keeps.
    pub(super) fn begin(
        &self,
        call: CollectiveCall,
        ready: (crate::Event, u64),
        done: (crate::Event, u64),
        keeps: Vec<Arc<Storage>>,
    ) {
        let failing = done.0.clone();
        let run = Run { call, ready, done, usage: None, keeps };
        if self.inner.jobs.send(Job::Run(Box::new(run))).is_err() {
            failing.fail(&Error::Environment("the thread of a member has ended".into()));
        }
    }

    /// Whether both are the same member.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Whether both are members of the same communicator in this process.
    pub(super) fn is_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner.aborter, &other.inner.aborter)
    }
}

impl Inner {
    /// Passes an operation to the thread, behind the stream's work that signals `ready`.
    fn submit(
        &self,
        call: CollectiveCall,
        usages: crate::memory::usage::Usages,
        ready: crate::Event,
        done: crate::Event,
    ) {
        let (failing, name) = (done.clone(), call.collective.name());
        let entered = commit(usages, self.stream.id, |storages| {
            let (promise, outcome) = Promise::new();
            let usage = Some((promise, storages));
            let run = Run { call, ready: (ready, 1), done: (done, 1), usage, keeps: Vec::new() };
            let sent = self.jobs.send(Job::Run(Box::new(run)));
            sent.map_err(|_| Error::Environment("the thread of a member has ended".into()))?;
            Ok((outcome, ()))
        });
        let cause = match entered {
            Ok((_, Some(()))) => return,
            // It reads content that failed work should have written.
            Ok((outcome, None)) => {
                outcome.get().and_then(|result| result.clone().err()).unwrap_or(Error::Cancelled)
            }
            Err(error) => error,
        };
        self.aborter.abort(self.rank, &format!("its {name} was not submitted: {cause}"));
        failing.fail(&cause);
    }
}

/// The file of a communicator of processes.
fn segment_path(job: &str, number: u32) -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let folder = if memory.is_dir() { memory } else { std::env::temp_dir() };
    folder.join(format!("elinvar-{job}-{number}"))
}

impl CommandBuffer {
    /// Adds an operation of a communicator: it begins when the preceding commands have ended, and the following ones begin when it has.
    ///
    /// # Errors
    /// `InvalidArgument` for a communicator or a buffer of another device, a rank that does not exist, or a buffer of a wrong length; `Unsupported` for a
    /// reduction of a type that is no number.
    pub fn collective(&mut self, communicator: &Communicator, operation: Operation<'_>) -> Result<()> {
        communicator.add(self, operation)
    }
}

impl Stream {
    /// Submits an operation of a communicator, behind the stream's pending work. Does not block.
    ///
    /// # Errors
    /// As [`CommandBuffer::collective`] and [`CommandBuffer::submit`].
    pub fn collective(&self, communicator: &Communicator, operation: Operation<'_>) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.collective(communicator, operation)?;
        command_buffer.submit()
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { rank, size, engine, device, .. } = &*self.inner;
        write!(f, "Communicator(rank {rank} of {size}, {engine}, {device:?})")
    }
}

impl Device {
    /// The device for a process of a job: of those of the preferred kind, the one whose number is the local rank, and again from the first if there are
    /// more processes.
    ///
    /// # Errors
    /// As [`Device::all`].
    pub fn of_rank(environment: &Environment) -> Result<Self> {
        let all = Self::all()?;
        let kind = all.first().map(Self::kind);
        let mut same: Vec<Self> = all.into_iter().filter(|device| Some(device.kind()) == kind).collect();
        let number = environment.local_rank as usize % same.len().max(1);
        if number < same.len() {
            return Ok(same.swap_remove(number));
        }
        Self::system_default()
    }
}
