//! Messages between host and worker, as plain data.
//!
//! A message is its length (u32, little-endian), followed by its fields in postcard encoding. Memory, kernels, queues and submissions are
//! identified by numbers that the host assigns. The worker is not trusted: its messages are copied to host memory before they are
//! parsed, and an invalid message ends the worker.

use std::time::Duration;

use elinvar_driver::{Dim3, Error, Label, PipelineOptions, Priority};
use serde::{Deserialize, Serialize};

/// Maximum size of a message that the host accepts, in bytes.
pub(crate) const MOST_FROM_WORKER: usize = 64 << 20;

/// The first message, sent over the socket with the files of rings and memory.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: String,
    pub(crate) inner: Inner,
    /// Size of the memory file in bytes.
    pub(crate) arena: u64,
    pub(crate) private_memory: Option<u64>,
    pub(crate) confined: bool,
    /// Process ID of the host; the worker ends with it.
    pub(crate) host: u32,
}

/// The worker's device.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Inner {
    /// The CPU, with this number of worker threads.
    Cpu { threads: usize },
    /// An NVIDIA GPU, by its index.
    Cuda { index: usize },
}

impl Inner {
    /// How long each side spins before it sleeps: about the duration of a short launch.
    pub(crate) fn awake(self) -> Duration {
        Duration::from_micros(match self {
            Self::Cpu { .. } => 20,
            Self::Cuda { .. } => 100,
        })
    }
}

/// Messages from host to worker.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToWorker<'a> {
    /// Map a range of the memory file.
    Map {
        memory: u64,
        offset: u64,
        len: u64,
    },
    /// Map device memory, whose file is sent through the socket, at a device address.
    MapDevice {
        memory: u64,
        bytes: u64,
        address: u64,
    },
    Unmap {
        memory: u64,
    },
    /// Load a kernel, prepared for a threadgroup size, if there is one, and the largest memory.
    Load {
        function: u64,
        #[serde(with = "serde_bytes")]
        bundle: &'a [u8],
        key: [u8; 32],
        kernel: &'a str,
        options: PipelineOptions,
        group: Option<Dim3>,
        stoppable: bool,
        /// Size of the largest memory of its dispatches, rounded up to a bound.
        largest: u64,
        log: Option<LogLoan>,
    },
    Unload {
        function: u64,
    },
    /// The largest number of threadgroups of a cooperative launch of a loaded kernel.
    Resident {
        function: u64,
        group: Dim3,
        threadgroup_bytes: u64,
        request: u64,
    },
    Open {
        queue: u64,
        priority: Priority,
    },
    Close {
        queue: u64,
    },
    /// A batch: commands without waits.
    Submit {
        queue: u64,
        piece: u64,
        #[serde(borrow)]
        commands: Vec<Order<'a>>,
    },
    /// A copy or fill on behalf of the host, not ordered with any queue.
    Transfer {
        request: u64,
        #[serde(borrow)]
        order: Order<'a>,
    },
    /// Cancel batches of one submission, if the first has not begun.
    Cancel {
        queue: u64,
        pieces: Vec<u64>,
        request: u64,
    },
    Stop {
        queue: u64,
        pieces: Vec<u64>,
        cause: Error,
    },
    Acknowledge {
        queue: u64,
    },
    UseUnits(u32),
}

/// The log ring for a kernel with log calls.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct LogLoan {
    /// Range of the memory file.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Size of the log in bytes.
    pub(crate) size: u64,
    /// The kernel's number in records.
    pub(crate) kernel: u32,
}

/// A command.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order<'a> {
    Dispatch(#[serde(borrow)] Launch<'a>),
    Copy {
        source: Slice,
        target: Slice,
    },
    Fill {
        target: Slice,
        #[serde(with = "serde_bytes")]
        pattern: &'a [u8],
    },
    Timestamp,
}

/// A dispatch.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Launch<'a> {
    pub(crate) function: u64,
    #[serde(borrow)]
    pub(crate) bindings: Vec<Value<'a>>,
    /// With whether they are written.
    pub(crate) uses: Vec<(Slice, bool)>,
    pub(crate) grid: Extent,
    pub(crate) group: Dim3,
    pub(crate) label: Option<Label>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Extent {
    Threads(Dim3),
    Indirect(Slice),
}

/// An argument's value.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Value<'a> {
    Memory(Slice),
    Bytes(#[serde(borrow, with = "serde_bytes")] &'a [u8]),
    Threadgroup(u64),
    Unbound,
}

/// A range of a memory.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Slice {
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// Messages from worker to host. Times are of the worker's device clock.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum FromWorker {
    /// The worker is ready. The device's clock and the system's at the same moment, plus or minus `error_ns`.
    Ready {
        clock_ns: u64,
        system_ns: u64,
        error_ns: u64,
    },
    /// The worker cannot serve.
    Refused(Error),
    /// With the maximum number of threads per threadgroup of the kernel.
    Loaded {
        function: u64,
        result: Result<u32, Error>,
    },
    Resident {
        request: u64,
        result: Result<u64, Error>,
    },
    Transferred {
        request: u64,
        result: Result<(), Error>,
    },
    /// The device was lost.
    Lost(Error),
    /// Start, end, and the values of its timestamps in order, as far as they were taken.
    Ended {
        piece: u64,
        result: Result<(u64, u64), Error>,
        stamps: Vec<Option<u64>>,
    },
    Cancelled {
        request: u64,
        done: bool,
    },
    /// The running work cannot be stopped.
    CannotStop {
        piece: u64,
    },
}

/// Appends a message to the bytes to send.
pub(crate) fn write<T: Serialize>(message: &T, into: &mut Vec<u8>) -> Result<(), Error> {
    let start = into.len();
    into.extend([0; 4]);
    let written = postcard::to_extend(message, std::mem::take(into));
    *into = written.map_err(|error| Error::invalid(format!("a message to a worker process: {error}")))?;
    let len = into.len() - start - 4;
    let len =
        u32::try_from(len).map_err(|_| Error::invalid(format!("commands of {len} bytes in one message")))?;
    into[start..start + 4].copy_from_slice(&len.to_le_bytes());
    Ok(())
}

/// The fields of the first message in `bytes`, and its size; `None` if it is incomplete.
///
/// # Errors
/// The length, if it exceeds `most`.
pub(crate) fn first(bytes: &[u8], most: usize) -> Result<Option<(&[u8], usize)>, usize> {
    let Some((len, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let len = u32::from_le_bytes(*len) as usize;
    if len > most {
        return Err(len);
    }
    Ok(rest.get(..len).map(|fields| (fields, len + 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_whole_and_one_by_one() {
        let slice = Slice { memory: 7, offset: 4, len: 100 };
        let launch = Launch {
            function: 3,
            bindings: vec![Value::Memory(slice), Value::Bytes(b"four"), Value::Threadgroup(64)],
            uses: vec![(slice, true)],
            grid: Extent::Indirect(slice),
            group: Dim3::from(32),
            label: Some(Label { name: "here".into(), id: 9 }),
        };
        let commands = vec![Order::Dispatch(launch), Order::Timestamp];
        let mut bytes = Vec::new();
        write(&ToWorker::Submit { queue: 1, piece: 2, commands }, &mut bytes).unwrap();
        write(&ToWorker::UseUnits(5), &mut bytes).unwrap();
        let (fields, len) = first(&bytes, 1000).unwrap().unwrap();
        let ToWorker::Submit { queue: 1, piece: 2, commands } = postcard::from_bytes(fields).unwrap() else {
            panic!("another message");
        };
        assert!(format!("{commands:?}").contains("\"here\""));
        let (fields, rest) = first(&bytes[len..], 1000).unwrap().unwrap();
        assert!(matches!(postcard::from_bytes(fields), Ok(ToWorker::UseUnits(5))));
        assert_eq!(len + rest, bytes.len());
        assert!((0..len).all(|end| first(&bytes[..end], 1000).unwrap().is_none()));
        assert!(first(&bytes, 3).is_err());
    }

    #[test]
    fn errors_come_back() {
        let cause = Error::Fault(elinvar_driver::Fault {
            kernel: "k".into(),
            message: "out of bounds".into(),
            location: Some("k.metal:3".into()),
            launch: None,
        });
        let ended = FromWorker::Ended { piece: 1, result: Err(cause.poison()), stamps: vec![None, Some(3)] };
        let mut bytes = Vec::new();
        write(&ended, &mut bytes).unwrap();
        let back: FromWorker = postcard::from_bytes(&bytes[4..]).unwrap();
        assert_eq!(format!("{back:?}"), format!("{ended:?}"));
    }
}
