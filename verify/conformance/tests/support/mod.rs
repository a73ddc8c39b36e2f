//! Common code of the runtime's tests: signatures, a simulated device, a minimal executor.
#![allow(dead_code)] // each test binary uses its part

pub mod compilations;
pub mod graph;
pub mod recovery;

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use elinvar::driver::{Access, Arg, ArgKind, ElementType, Error, Scalar, Signature};
use elinvar::{Args, Completion, Device, Grid, Kernel, Source, Stream};
use elinvar_conformance::sim::{Launch, Sim};

/// `device T*`, or `device const T*`.
pub fn pointer(name: &str, scalar: Scalar, access: Access) -> Arg {
    Arg {
        name: name.into(),
        kind: ArgKind::Pointer,
        index: 0,
        element: ElementType::Scalar(scalar),
        element_size: scalar.size(),
        element_align: scalar.size(),
        access,
        constant: false,
    }
}

/// `constant T&`.
pub fn constant(name: &str, scalar: Scalar) -> Arg {
    Arg { kind: ArgKind::Reference, constant: true, ..pointer(name, scalar, Access::Read) }
}

/// `constant uint3&`.
pub fn uint3(name: &str) -> Arg {
    let element = ElementType::Vector { scalar: Scalar::U32, lanes: 3, packed: false };
    Arg { element, element_size: 16, element_align: 16, ..constant(name, Scalar::U32) }
}

/// `threadgroup float*`.
pub fn threadgroup(name: &str) -> Arg {
    Arg { kind: ArgKind::Threadgroup, ..pointer(name, Scalar::F32, Access::ReadWrite) }
}

/// An argument whose element is a struct.
pub fn structure(base: Arg, size: u64, align: u64) -> Arg {
    Arg { element: ElementType::Other("Params".into()), element_size: size, element_align: align, ..base }
}

pub fn signature(name: &str, args: Vec<Arg>) -> Signature {
    Signature {
        name: name.into(),
        args,
        builtins: Vec::new(),
        file: "kernel.metal".into(),
        line: 1,
        max_threads_per_threadgroup: None,
        code: None,
        logs: Vec::new(),
    }
}

/// A simulated device, a stream on it, and its kernels.
pub struct Bench {
    pub sim: Arc<Sim>,
    pub device: Device,
    pub stream: Stream,
}

impl Bench {
    pub fn new() -> Self {
        Self::on(Sim::new())
    }

    pub fn on(sim: Arc<Sim>) -> Self {
        let device = Device::new(sim.clone());
        let stream = device.stream().expect("a stream");
        Self { sim, device, stream }
    }

    pub fn kernel(&self, args: Vec<Arg>) -> Kernel {
        self.declare(signature("k", args), |_| Ok(()))
    }

    pub fn declare(
        &self,
        signature: Signature,
        body: impl Fn(&Launch<'_>) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Kernel {
        let name = signature.name.clone();
        self.sim.add_kernel_with(signature, body);
        let library = self.device.compile(Source::msl("")).expect("the simulated device compiles anything");
        library.kernel(&name).expect("a kernel that was declared")
    }

    /// `increment(device uint* data)`: adds one to the first element.
    pub fn increment(&self) -> Kernel {
        let data = pointer("data", Scalar::U32, Access::ReadWrite);
        self.declare(signature("increment", vec![data]), |launch| {
            let bytes = launch.bytes(0)?;
            let first: u32 = bytemuck::pod_read_unaligned(&bytes[..4]);
            launch.write(0, &(first + 1).to_ne_bytes())
        })
    }

    /// `look(device const uint* data)`: only reads.
    pub fn look(&self) -> Kernel {
        self.declare(signature("look", vec![pointer("data", Scalar::U32, Access::Read)]), |_| Ok(()))
    }

    /// `fail(device uint* data)`: fails with a fault.
    pub fn fail(&self) -> Kernel {
        let data = pointer("data", Scalar::U32, Access::ReadWrite);
        self.declare(signature("fail", vec![data]), |_| Err(fault()))
    }

    pub fn launch(&self, kernel: &Kernel, args: impl Args) -> Result<Completion, Error> {
        launch(kernel, &self.stream, Grid::threads(1), args)
    }
}

/// The fault of [`Bench::fail`].
pub fn fault() -> Error {
    let message = "index 7 of `data`".into();
    Error::Fault(elinvar::Fault { kernel: "fail".into(), message, location: None, launch: None })
}

#[allow(unsafe_code)] // launches
pub fn launch(kernel: &Kernel, stream: &Stream, grid: Grid, args: impl Args) -> Result<Completion, Error> {
    // SAFETY: the kernels of these tests stay within their arguments by construction.
    unsafe { kernel.launch(stream, grid, args) }
}

/// The text of an `InvalidArgument`.
#[track_caller]
pub fn invalid<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::InvalidArgument(text)) => text,
        other => panic!("expected InvalidArgument, got {other:?}"),
    }
}

/// Asserts that the error is `Poisoned` by [`fault`].
#[track_caller]
pub fn assert_poisoned<T: std::fmt::Debug>(result: Result<T, Error>) {
    match result {
        Err(Error::Poisoned(cause)) => assert_eq!(cause.to_string(), fault().to_string()),
        other => panic!("expected Poisoned, got {other:?}"),
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal executor, which polls one future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
