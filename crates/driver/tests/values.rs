//! The values of the contract: names, sizes and texts that people and messages see, and what an indirect launch's counts mean.
#![allow(unsafe_code)] // calls what is unsafe to call

mod common;

use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::primitive::{DataType, MatMul};
use elinvar_driver::{
    Access, Binding, Builtin, ConstantKey, DeviceKind, Dim3, Dispatch, ElementType, Error, Event, Grid,
    HostBlock, Label, Memory, MemorySlice, Pipeline, PrimitiveKind, Result, Scalar, Signature, Source,
    Timeline, TimestampSlot, Use,
};

use common::Counted;

#[test]
fn scalars_have_the_names_and_sizes_of_msl() {
    let all = [
        (Scalar::Bool, "bool", 1),
        (Scalar::I8, "char", 1),
        (Scalar::U8, "uchar", 1),
        (Scalar::I16, "short", 2),
        (Scalar::U16, "ushort", 2),
        (Scalar::I32, "int", 4),
        (Scalar::U32, "uint", 4),
        (Scalar::I64, "long", 8),
        (Scalar::U64, "ulong", 8),
        (Scalar::F16, "half", 2),
        (Scalar::BF16, "bfloat", 2),
        (Scalar::F32, "float", 4),
    ];
    for (scalar, name, size) in all {
        assert_eq!((scalar.msl_name(), scalar.size()), (name, size));
        assert_eq!(ElementType::Scalar(scalar).to_string(), name);
        assert_eq!(ElementType::Atomic(scalar).to_string(), format!("atomic_{name}"));
        for (packed, before) in [(false, ""), (true, "packed_")] {
            let vector = ElementType::Vector { scalar, lanes: 3, packed };
            assert_eq!((vector.to_string(), vector.scalar()), (format!("{before}{name}3"), Some(scalar)));
        }
    }
    let other = ElementType::Other("Params".into());
    assert_eq!((other.to_string(), other.scalar()), ("Params".to_owned(), None));
    assert_eq!((DataType::F16.to_string(), DataType::F32.to_string()), ("f16".into(), "f32".into()));
}

#[test]
fn kinds_have_names() {
    let kinds = [DeviceKind::Metal, DeviceKind::Cuda, DeviceKind::Cpu, DeviceKind::Sim];
    assert_eq!(kinds.map(DeviceKind::name), ["metal", "cuda", "cpu", "sim"]);
    let names = PrimitiveKind::ALL.map(PrimitiveKind::name);
    let expected = [
        "matrix multiplication",
        "matrix-vector multiplication",
        "softmax",
        "reduction",
        "convolution",
        "pooling",
        "convolution of volumes",
        "batch normalization",
        "normalization",
        "attention",
    ];
    assert_eq!(names, expected);
    let mut product = MatMul::packed(DataType::F32, 3, 5, 2);
    assert_eq!(product.interior(), 5);
    product.transpose_left = true;
    assert_eq!(product.interior(), 3);
}

#[test]
fn sizes_are_made_from_what_is_at_hand() {
    assert_eq!(Dim3::from(7), Dim3::new(7, 1, 1));
    assert_eq!(Dim3::from((7, 8)), Dim3::new(7, 8, 1));
    assert_eq!(Dim3::from((7, 8, 9)), Dim3::new(7, 8, 9));
    assert_eq!(Dim3::from([7, 8, 9]).to_array(), [7, 8, 9]);
    assert_eq!(Dim3::new(7, 8, 9).to_string(), "7×8×9");
    assert_eq!(ConstantKey::from(3), ConstantKey::Index(3));
    assert_eq!(ConstantKey::from("a"), ConstantKey::Name("a".into()));
    assert_eq!(ConstantKey::from("a".to_owned()), ConstantKey::from("a"));
}

#[test]
fn folders_of_a_source_are_resolved_and_those_that_are_not_there_left_out() {
    let here = std::env::current_dir().unwrap();
    let source = Source::msl("").include_dir(here.join("src/..")).include_dir(here.join("absent"));
    assert_eq!(source.include_roots(), Some(vec![here.canonicalize().unwrap()]));
    let library = Source::metal_library("k.metallib", *b"1234567");
    assert_eq!(format!("{:?}", library.metal_library.unwrap()), "a Metal library of 7 bytes");
}

#[test]
fn a_stamp_holds_the_last_time_that_was_noted() {
    let stamp = TimestampSlot::default();
    assert_eq!(stamp.ns(), None);
    stamp.set(0);
    assert_eq!(stamp.ns(), Some(0), "0 is a time");
    stamp.set(77);
    assert_eq!((stamp.ns(), format!("{stamp:?}")), (Some(77), "TimestampSlot(Some(77))".into()));
    stamp.clear();
    assert_eq!((stamp.ns(), TimestampSlot::new().ns()), (None, None));
}

struct Kernel(Signature);

impl Kernel {
    fn new() -> Self {
        let builtin = |attribute: &str, dimensions| Builtin { attribute: attribute.into(), dimensions };
        Self(Signature {
            name: "k".into(),
            args: Vec::new(),
            builtins: vec![builtin("thread_index_in_simdgroup", 1), builtin("thread_position_in_grid", 2)],
            file: "k.metal".into(),
            line: 1,
            max_threads_per_threadgroup: None,
            code: None,
            logs: Vec::new(),
        })
    }
}

impl Pipeline for Kernel {
    fn signature(&self) -> &Signature {
        &self.0
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        1024
    }

    fn prepare(&self, _group: Dim3) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_pipeline_is_known_by_its_kernel() {
    let kernel = Kernel::new();
    assert_eq!((kernel.threadgroup_memory(), kernel.0.dimensions()), (0, 2));
    assert!(kernel.stoppable().is_none());
    let pipeline: &dyn Pipeline = &kernel;
    assert_eq!(format!("{pipeline:?}"), "k");
    let event: &dyn Event = &Timeline::new();
    event.signal(5, 0);
    assert_eq!(format!("{event:?}"), "Event(at 5)");
}

#[test]
fn the_largest_memory_of_a_dispatch_counts_whole() {
    let slice = |bytes, len| MemorySlice { memory: Arc::new(Counted(bytes)), offset: 0, len };
    let dispatch = |bindings: Vec<Binding>, uses: &[u64]| Dispatch {
        pipeline: Arc::new(Kernel::new()),
        bindings,
        uses: uses.iter().map(|bytes| Use { slice: slice(*bytes, 1), access: Access::Read }).collect(),
        grid: Grid::Indirect(slice(4096, 12)),
        group: Dim3::from(8),
        label: None,
    };
    assert_eq!(dispatch(Vec::new(), &[]).largest_memory(), 0, "the counts are not the kernel's");
    let small = || vec![Binding::bytes(&[0; 99]), Binding::Threadgroup(100), Binding::Memory(slice(64, 64))];
    assert_eq!(dispatch(small(), &[]).largest_memory(), 64);
    let mut bindings = small();
    bindings.push(Binding::Memory(slice(256, 1)));
    assert_eq!(dispatch(bindings, &[]).largest_memory(), 256, "not the slice's 1");
    assert_eq!(dispatch(small(), &[48, 512]).largest_memory(), 512);
    dispatch(small(), &[]).prepare().unwrap();
}

#[test]
fn memory_has_no_address_unless_it_says_so_and_is_in_step() {
    let memory = Counted(64);
    assert_eq!(memory.gpu_address(), None);
    // SAFETY: nobody else has it.
    unsafe { memory.pull(0, 64).and(memory.push(0, 64)).unwrap() };
    let block = HostBlock { address: NonNull::dangling(), bytes: 4096, owner: Box::new(()) };
    assert_eq!(format!("{block:?}"), "HostBlock(0x1, 4096 bytes)");
    let slice = MemorySlice { memory: Arc::new(Counted(64)), offset: 16, len: 8 };
    assert!(format!("{slice:?}").ends_with("[16..24]"));
    let grid = Grid::Indirect(slice);
    assert_eq!((grid.threads(), grid.counts().map(|counts| counts.offset)), (None, Some(16)));
    let grid = Grid::Threads(Dim3::from(3));
    assert_eq!((grid.threads(), grid.counts().is_none()), (Some(Dim3::from(3)), true));
}

#[test]
fn counts_beyond_what_a_dimension_takes_are_a_fault_of_the_launch() {
    let dispatch = |label: Option<Label>| Dispatch {
        pipeline: Arc::new(Kernel::new()),
        bindings: Vec::new(),
        uses: Vec::new(),
        grid: Grid::Threads(Dim3::from(1)),
        group: Dim3::new(64, 2, 1),
        label: label.map(Arc::new),
    };
    assert_eq!(dispatch(None).threads_of(Dim3::new(3, 5, 7)).unwrap(), Dim3::new(192, 10, 7));
    let most = 1 << 26;
    assert_eq!(dispatch(None).threads_of(Dim3::from(most - 1)).unwrap().x, 64 * (most - 1));
    let expected = "67108864×1×1 threadgroups of 64×2×1 threads, read when it began: at most 4294967295 threads along a \
                    dimension";
    for (label, shown) in
        [(None, "kernel `k`"), (Some(Label { name: "step".into(), id: 9 }), "kernel `k`, launch `step` (9)")]
    {
        let error = dispatch(label).threads_of(Dim3::from(most)).unwrap_err();
        assert!(matches!(&error, Error::Fault(fault) if fault.kernel == "k" && fault.location.is_none()));
        assert_eq!(error.to_string(), format!("{shown}: {expected}"));
    }
}

#[test]
fn what_is_behind_a_failure_names_the_first_cause() {
    let first = Error::DeviceLost("it is gone".into());
    let poisoned = first.poison();
    assert_eq!(poisoned.to_string(), "not run, because earlier work failed: device lost: it is gone");
    assert_eq!(poisoned.poison().to_string(), poisoned.to_string(), "there is no nesting");
    let texts = [
        (Error::OutOfMemory { requested: 7, available: 5 }, "out of memory: 7 bytes requested, 5 available"),
        (Error::QueueFull { limit: 3 }, "the queue is full: 3 submissions are in flight"),
        (Error::Cancelled, "cancelled before it began"),
        (Error::Timeout("2 s".into()), "timed out: 2 s"),
        (Error::Refused("later".into()), "refused: later"),
        (Error::Environment("no disk".into()), "no disk"),
    ];
    for (error, text) in texts {
        assert_eq!(error.to_string(), text);
    }
}

#[test]
fn a_value_is_pending_until_it_is_reached_or_the_event_fails() {
    let event = Timeline::new();
    assert!(event.is_pending(1) && !event.is_pending(0));
    event.signal(2, 0);
    assert!(!event.is_pending(2) && event.is_pending(3));
    event.fail(&Error::Cancelled);
    assert!(!event.is_pending(3) && !event.is_pending(2));
}
