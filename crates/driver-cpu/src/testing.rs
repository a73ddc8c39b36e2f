//! Kernels for this crate's tests, in the form of compiler output, and functions to run them.

use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, atomic::AtomicU32};

use elinvar_driver::{
    Binding, Command, Device, Dim3, Dispatch, Grid, Init, Memory, MemorySlice, Pipeline, Queue, Result,
    Signature, Storage, Submission, Timing,
};
use elinvar_msl::Toolchain;

use elinvar_native::{Generator, Made, Object, Specialization, Target};

use crate::device::CpuDevice;
use crate::kernel::{Build, CompiledKernel, CpuPipeline};
use crate::loader::Code;

/// A function that runs `body` for every threadgroup `%i`; `body` may return through `%fault`.
macro_rules! groups {
    ($body:literal) => {
        concat!(
            "define i32 @elinvar_threadgroups(ptr %launch, ptr %scratch, i64 %begin, i64 %end) {
            entry:
              %args = load ptr, ptr %launch
              %a0 = load ptr, ptr %args
              %a1.at = getelementptr ptr, ptr %args, i64 1
              br label %group
            group:
              %i = phi i64 [ %begin, %entry ], [ %i.next, %next ]
              ",
            $body,
            "
              br label %next
            next:
              %i.next = add i64 %i, 1
              %done = icmp eq i64 %i.next, %end
              br i1 %done, label %exit, label %group
            exit:
              ret i32 0
            fault:
              ret i32 1
            }"
        )
    };
}

/// `a0[i] += 1`, atomically.
pub(crate) const COUNT: &str = groups!(
    "%p = getelementptr i32, ptr %a0, i64 %i
     %old = atomicrmw add ptr %p, i32 1 monotonic"
);

/// `a1[i] = a0[0]++`, so that `a1` says when each group began.
pub(crate) const ORDER: &str = groups!(
    "%a1 = load ptr, ptr %a1.at
     %n = atomicrmw add ptr %a0, i32 1 monotonic
     %p = getelementptr i32, ptr %a1, i64 %i
     store i32 %n, ptr %p"
);

/// As [`COUNT`], after some microseconds of work.
pub(crate) const SLOW_COUNT: &str = groups!(
    "br label %work
    work:
     %k = phi i32 [ 0, %group ], [ %k.next, %work ]
     store volatile i32 %k, ptr %scratch
     %k.next = add i32 %k, 1
     %worked = icmp eq i32 %k.next, 10000
     br i1 %worked, label %count, label %work
    count:
     %p = getelementptr i32, ptr %a0, i64 %i
     %old = atomicrmw add ptr %p, i32 1 monotonic"
);

/// `a0[i] = a0[i - 1] + 1`, waiting until the group before has written; `a0[0] = 1`.
pub(crate) const LOOK_BACK: &str = groups!(
    "%p = getelementptr i64, ptr %a0, i64 %i
     %before = getelementptr i64, ptr %p, i64 -1
     %first = icmp eq i64 %i, 0
     br i1 %first, label %write, label %wait
    wait:
     %seen = load atomic i64, ptr %before acquire, align 8
     %unset = icmp eq i64 %seen, 0
     br i1 %unset, label %wait, label %write
    write:
     %from = phi i64 [ 0, %group ], [ %seen, %wait ]
     %sum = add i64 %from, 1
     store atomic i64 %sum, ptr %p release, align 8"
);

/// Waits until `a0[0]` is not zero.
pub(crate) const GATE: &str = groups!(
    "br label %wait
    wait:
     %seen = load atomic i32, ptr %a0 acquire, align 4
     %shut = icmp eq i32 %seen, 0
     br i1 %shut, label %wait, label %open
    open:"
);

/// `a0[0] += 1`, atomically; the group with index `a1[0]` fails instead.
pub(crate) const FAULT: &str = groups!(
    "%a1 = load ptr, ptr %a1.at
     %last = load i64, ptr %a1
     %wrong = icmp eq i64 %i, %last
     br i1 %wrong, label %fault, label %right
    right:
     %old = atomicrmw add ptr %a0, i32 1 monotonic"
);

/// `a0[0] = a0[0] * 3 + a1[0]`, not atomically.
pub(crate) const STEP: &str = groups!(
    "%a1 = load ptr, ptr %a1.at
     %add = load i32, ptr %a1
     %old = load i32, ptr %a0
     %three = mul i32 %old, 3
     %new = add i32 %three, %add
     store i32 %new, ptr %a0"
);

/// Sets upward rounding and flushing of subnormal numbers, which no kernel may do.
#[cfg(target_arch = "x86_64")]
pub(crate) const SPOIL: &str = concat!(
    groups!(
        "store i32 57280, ptr %scratch
         call void @llvm.x86.sse.ldmxcsr(ptr %scratch)"
    ),
    "\ndeclare void @llvm.x86.sse.ldmxcsr(ptr)"
);

/// `a0[i]` is a third, rounded as the thread does it.
#[cfg(target_arch = "x86_64")]
pub(crate) const THIRD: &str = groups!(
    "%three = load volatile float, ptr %a0
     %third = fdiv float 1.0, %three
     %p = getelementptr float, ptr %a0, i64 1
     store float %third, ptr %p"
);

/// `a1` and `a2` are threadgroup memory: fills all bytes of the latter, `a3[0]` of them, and stores the two
/// offsets and a byte of the end to `a0[0..3]`. Its own scratch is 64 bytes.
pub(crate) const THREADGROUP: &str = groups!(
    "%offset1 = load i64, ptr %a1.at
     %a2.at = getelementptr ptr, ptr %args, i64 2
     %offset2 = load i64, ptr %a2.at
     %a3.at = getelementptr ptr, ptr %args, i64 3
     %a3 = load ptr, ptr %a3.at
     %len = load i64, ptr %a3
     %dynamic = getelementptr i8, ptr %scratch, i64 64
     %to = getelementptr i8, ptr %dynamic, i64 %offset2
     call void @llvm.memset.p0.i64(ptr %to, i8 77, i64 %len, i1 true)
     %after = getelementptr i8, ptr %to, i64 %len
     %end.at = getelementptr i8, ptr %after, i64 -1
     %byte = load i8, ptr %end.at
     %wide = zext i8 %byte to i64
     store i64 %offset1, ptr %a0
     %o1 = getelementptr i64, ptr %a0, i64 1
     store i64 %offset2, ptr %o1
     %o2 = getelementptr i64, ptr %a0, i64 2
     store i64 %wide, ptr %o2"
);

/// The tools that kernels are built with outside of tests, too.
pub(crate) fn generator() -> Generator {
    Generator::new(Toolchain::find().unwrap().path(), Target::from_env().unwrap())
}

/// Compile and load a text that defines [`Object::SYMBOL`].
pub(crate) fn load(generator: &Generator, ir: &str) -> Result<Code> {
    Code::from_bytes(&generator.object(ir)?, Object::SYMBOL)
}

pub(crate) fn signature(name: &str) -> Signature {
    Signature {
        name: name.into(),
        args: Vec::new(),
        builtins: Vec::new(),
        file: "test.ll".into(),
        line: 1,
        max_threads_per_threadgroup: None,
        code: None,
        logs: Vec::new(),
    }
}

/// Builds the same function for every size; 64 bytes of scratch, one fault, groups in any order.
pub(crate) fn build(name: &str, ir: &'static str) -> Build {
    build_ordered(name, ir, false)
}

fn build_ordered(name: &str, ir: &'static str, ascending: bool) -> Build {
    let name = name.to_owned();
    Arc::new(move |_, _| {
        let code = CompiledKernel {
            name: name.clone(),
            code: load(&generator(), ir)?,
            crash: crate::crash::Description::new(&signature(&name), false),
            scratch_bytes: 64,
            faults: vec![("it is the last".into(), Some("test.metal:3".into()))],
            bounds: None,
            ascending,
            cooperative: false,
            private_counters: false,
            group_ns: AtomicU64::new(0),
        };
        Ok(Made { code, optimized: true, optimizable: false, row_sizes: None })
    })
}

/// A pipeline called `kernel`, prepared for one-thread groups.
pub(crate) fn pipeline(ir: &'static str) -> Arc<dyn Pipeline> {
    ordered_pipeline(ir, false)
}

/// The same, whose groups may have to start in ascending order.
pub(crate) fn ordered_pipeline(ir: &'static str, ascending: bool) -> Arc<dyn Pipeline> {
    let pipeline = CpuPipeline::new(
        signature("kernel"),
        Specialization::ALWAYS,
        build_ordered("kernel", ir, ascending),
        None,
    );
    pipeline.prepare(Dim3::from(1)).unwrap();
    Arc::new(pipeline)
}

pub(crate) fn device(threads: usize) -> CpuDevice {
    CpuDevice::new(threads, &elinvar_cache::Cache::off()).unwrap()
}

pub(crate) fn memory(device: &CpuDevice, bytes: usize) -> Arc<dyn Memory> {
    device.allocate(bytes as u64, Storage::Shared, Init::Zeroed).unwrap()
}

pub(crate) fn slice(memory: &Arc<dyn Memory>) -> MemorySlice {
    MemorySlice { memory: memory.clone(), offset: 0, len: memory.len() }
}

pub(crate) fn bound(memory: &Arc<dyn Memory>) -> Binding {
    Binding::Memory(slice(memory))
}

/// One-thread groups over `threads`.
pub(crate) fn dispatch(
    pipeline: &Arc<dyn Pipeline>,
    threads: impl Into<Dim3>,
    bindings: Vec<Binding>,
) -> Command {
    let (pipeline, threads) = (pipeline.clone(), threads.into());
    let group = Dim3::from(1);
    Command::Dispatch(Dispatch {
        pipeline,
        bindings,
        uses: Vec::new(),
        grid: Grid::Threads(threads),
        group,
        label: None,
    })
}

/// Submits commands. Returns a channel for the result.
pub(crate) fn submit(queue: &dyn Queue, commands: Vec<Command>) -> (Submission, Receiver<Result<Timing>>) {
    let (sender, outcome) = channel();
    let done = elinvar_driver::Done::new(move |result| sender.send(result).unwrap());
    (queue.submit(commands.into(), done).unwrap(), outcome)
}

pub(crate) fn run(queue: &dyn Queue, commands: Vec<Command>) -> Result<Timing> {
    submit(queue, commands).1.recv().unwrap()
}

#[allow(unsafe_code)] // reads memory that the test knows to be at rest
pub(crate) fn words(memory: &Arc<dyn Memory>) -> Vec<u32> {
    let mut bytes = vec![0; memory.len() as usize];
    // SAFETY: called when no submission that writes to it is running.
    unsafe { memory.read(0, &mut bytes).unwrap() };
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

#[allow(unsafe_code)] // writes memory that the test knows to be at rest
pub(crate) fn write(memory: &Arc<dyn Memory>, bytes: &[u8]) {
    // SAFETY: called when no submission that uses it is running.
    unsafe { memory.write(0, bytes).unwrap() };
}

/// A kernel that keeps its queue busy until [`Gate::open`], or until the test unwinds.
pub(crate) struct Gate {
    memory: Arc<dyn Memory>,
    pipeline: Arc<dyn Pipeline>,
}

impl Gate {
    pub(crate) fn new(device: &CpuDevice) -> Self {
        Self { memory: memory(device, 4), pipeline: pipeline(GATE) }
    }

    pub(crate) fn command(&self) -> Command {
        dispatch(&self.pipeline, 1, vec![bound(&self.memory)])
    }

    #[allow(unsafe_code)] // an atomic in memory that a kernel reads
    pub(crate) fn open(&self) {
        let word = self.memory.host_ptr().unwrap().cast::<AtomicU32>();
        // SAFETY: four aligned bytes that are only used atomically, alive while `self` is.
        unsafe { word.as_ref() }.store(1, std::sync::atomic::Ordering::Release);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

/// Stores to an unmapped address.
const WILD: &str = groups!("store i32 1, ptr inttoptr (i64 4656 to ptr)");
/// Executes an illegal instruction.
const TRAP: &str = groups!("br label %trap\n trap:\n call void asm sideeffect \"ud2\", \"\"()");
const BREAKPOINT: &str = groups!("call void asm sideeffect \"int3\", \"\"()");
/// Stores to the far end of a frame that is larger than the stack, and nowhere else.
const FRAME: &str = concat!(
    groups!("call void @frame(i64 %i)"),
    "define internal void @frame(i64 %n) noinline \"probe-stack\"=\"inline-asm\" {
      %frame = alloca [50331648 x i8], align 16
      %at = getelementptr i8, ptr %frame, i64 %n
      store volatile i64 %n, ptr %at
      ret void
    }"
);
const DIVIDE: &str =
    groups!("call void asm sideeffect \"xorl %ecx, %ecx; divl %ecx\", \"~{eax},~{ecx},~{edx},~{flags}\"()");
/// Loads from the page below the stack, with the stack pointer far above it.
const GUARD: &str = groups!("%value = load volatile i32, ptr %a0");
/// Infinite recursion.
const DEEP: &str = concat!(
    groups!("%sum = call i64 @deep(i64 %i)\n store volatile i64 %sum, ptr %a0"),
    "define internal i64 @deep(i64 %n) noinline {
      %frame = alloca [4096 x i8], align 16
      store volatile i64 %n, ptr %frame
      %more = add i64 %n, 1
      %below = call i64 @deep(i64 %more)
      %own = load volatile i64, ptr %frame
      %sum = add i64 %own, %below
      ret i64 %sum
    }"
);

/// The page below the stack of the one worker.
#[allow(unsafe_code)] // lends a page
fn below_the_stack(device: &CpuDevice) -> Arc<dyn Memory> {
    let inside = loop {
        if let [end] = crate::crash::stack_ends()[..] {
            break end + (1 << 20);
        }
        std::thread::yield_now();
    };
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ranges = maps.lines().filter_map(|line| {
        let (from, to) = line.split(' ').next()?.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    });
    let (start, _) = ranges.into_iter().find(|(from, to)| (*from..*to).contains(&inside)).unwrap();
    let address = std::ptr::without_provenance_mut::<u8>(start - 4096);
    let address = std::ptr::NonNull::new(address).unwrap();
    let block = elinvar_driver::HostBlock { address, bytes: 4096, owner: Box::new(()) };
    // SAFETY: only a kernel that is meant to crash there accesses the page.
    unsafe { device.wrap(block) }.unwrap()
}

/// A page of a file that has been truncated.
#[allow(unsafe_code)] // maps a file
fn beyond_a_file(device: &CpuDevice) -> Arc<dyn Memory> {
    use std::os::fd::AsRawFd as _;

    let file = tempfile::tempfile().unwrap();
    let bytes = usize::try_from(crate::host::page_size()).unwrap();
    file.set_len(bytes as u64).unwrap();
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: new pages, which no other code knows.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, kind, file.as_raw_fd(), 0) };
    let address = std::ptr::NonNull::new(address.cast::<u8>()).unwrap();
    let block = elinvar_driver::HostBlock { address, bytes: bytes as u64, owner: Box::new(()) };
    // SAFETY: only a kernel that is meant to crash there accesses the page.
    let memory = unsafe { device.wrap(block) }.unwrap();
    file.set_len(0).unwrap();
    memory
}

/// Raises the core dump limit, if this process may.
#[allow(unsafe_code)] // calls functions of the C library
fn allow_core() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls read or write one structure.
    unsafe {
        libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max.min(1 << 20);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
    }
}

/// Body of a child process of the crash tests: runs a kernel that crashes, or crashes outside of kernels.
#[allow(unsafe_code)] // installs a signal handler, and crashes
pub(crate) fn crash(case: &str) {
    extern "C" fn other(_signal: i32) {
        let text = b"the other handler\n";
        // SAFETY: so many bytes are there, and a handler may call both.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(77);
        }
    }
    if ["other", "host"].contains(&case) {
        // SAFETY: the handler does what a handler may.
        unsafe { libc::signal(libc::SIGSEGV, other as *const () as usize) };
    }
    if std::env::var_os("ELINVAR_TEST_CORE").is_some() {
        allow_core();
    }
    let device = device(1);
    let (name, ir) = match case {
        "bus" => ("bus", GUARD),
        "divide" => ("divide", DIVIDE),
        "frame" => ("frame", FRAME),
        "trap" => ("trap", TRAP),
        "breakpoint" => ("breakpoint", BREAKPOINT),
        "deep" => ("deep", DEEP),
        "guard" => ("guard", GUARD),
        _ => ("wild", WILD),
    };
    if case == "host" {
        // SAFETY: undefined behavior on purpose; the process is meant to end here.
        unsafe { std::ptr::without_provenance_mut::<u32>(8).write_volatile(1) };
    }
    let memory = match case {
        "guard" => below_the_stack(&device),
        "bus" => beyond_a_file(&device),
        _ => memory(&device, 4096),
    };
    let pipeline = CpuPipeline::new(signature(name), Specialization::ALWAYS, build(name, ir), None);
    pipeline.prepare(Dim3::from(1)).unwrap();
    let pipeline: Arc<dyn Pipeline> = Arc::new(pipeline);
    let queue = device.queue().unwrap();
    let outcome = run(&*queue, vec![dispatch(&pipeline, 1, vec![bound(&memory)])]);
    panic!("the kernel has ended: {outcome:?}");
}
