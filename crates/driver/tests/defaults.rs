//! What the traits answer for a driver that says nothing: no feature is there unless a driver brings it, and each refusal
//! names the device.
#![allow(unsafe_code)] // implements an unsafe trait

use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::{
    Access, Arg, ArgKind, Caps, CodeFacts, Command, Device, DeviceKind, Diagnostic, Dim3, Done, Driver,
    ElementType, Error, Features, HostBlock, Init, Library, Limits, MathMode, Memory, Pipeline,
    PipelineOptions, Primitives, Priority, Queue, Result, Scalar, Severity, Signature, Source, StopsAt,
    Storage, Submission,
};

struct Nothing;

impl Driver for Nothing {
    fn name(&self) -> &'static str {
        "nothing"
    }

    fn devices(&self) -> Result<Vec<Arc<dyn Device>>> {
        Ok(Vec::new())
    }
}

struct Plain(Caps);

impl Plain {
    fn new() -> Self {
        Self(Caps {
            name: "plain".into(),
            kind: DeviceKind::Sim,
            limits: Limits {
                simdgroup_width: 32,
                max_threads_per_threadgroup: 1,
                max_threadgroup_size: Dim3::new(1, 1, 1),
                max_threadgroup_memory: 0,
                max_buffer_bytes: 0,
                total_memory: 0,
                working_set: 0,
                memory_granule: 1,
                wrap_granule: None,
                compute_units: 1,
                parallel_queues: 1,
                vector_bits: None,
            },
            features: Features {
                unified_memory: false,
                managed_memory: false,
                stops_at: StopsAt::Never,
                restarts: false,
                sees_counts: false,
                priorities: false,
                names_accesses: false,
                tensor_products: false,
                primitives: Primitives::NONE,
            },
        })
    }
}

// SAFETY: it gives no memory and runs nothing.
unsafe impl Device for Plain {
    fn caps(&self) -> &Caps {
        &self.0
    }

    fn allocate(&self, requested: u64, _storage: Storage, _init: Init) -> Result<Arc<dyn Memory>> {
        Err(Error::OutOfMemory { requested, available: 0 })
    }

    fn available_memory(&self) -> u64 {
        0
    }

    fn compile(&self, _source: &Source) -> Result<Arc<dyn Library>> {
        Ok(Arc::new(Empty))
    }

    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>> {
        match priority {
            Priority::Normal => Ok(Arc::new(Deaf)),
            other => Err(Error::unsupported(format!("{other:?}"))),
        }
    }

    fn clock_ns(&self) -> u64 {
        0
    }
}

struct Empty;

impl Library for Empty {
    fn kernels(&self) -> &[Signature] {
        &[]
    }

    fn warnings(&self) -> &[Diagnostic] {
        &[]
    }

    fn pipeline(&self, kernel: &str, _options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        Err(Error::invalid(kernel))
    }
}

struct Deaf;

// SAFETY: it runs nothing.
unsafe impl Queue for Deaf {
    fn submit(&self, _commands: Arc<[Command]>, _done: Done) -> Result<Submission> {
        Err(Error::Cancelled)
    }

    fn cancel(&self, _submission: Submission) -> bool {
        false
    }

    fn acknowledge(&self) -> Option<Error> {
        None
    }
}

/// The text of `Unsupported`.
fn unsupported<T>(result: Result<T>) -> String {
    match result {
        Err(Error::Unsupported(text)) => text,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it is supported"),
    }
}

#[test]
fn a_device_does_what_it_brings_and_refuses_the_rest_by_name() {
    let device = Plain::new();
    assert!(device.details().is_empty() && device.reaches(&device).is_none());
    assert_eq!(unsupported(device.use_units(1)), "device `plain` always uses all of its compute units");
    assert_eq!(unsupported(device.thermal()), "the temperature of device `plain` is not measured");
    assert_eq!(unsupported(device.readings()), "the hardware of device `plain` is not measured");
    assert_eq!(unsupported(device.count_events()), "events of device `plain` are not counted");
    assert_eq!(unsupported(device.energy()), "the energy of device `plain` is not measured");
    assert_eq!(
        unsupported(device.capture(Path::new("/a/trace"))),
        "device `plain` does not support captures: capture to `/a/trace`"
    );
    assert_eq!(unsupported(device.reset()), "device `plain` cannot be reset");
    let block = HostBlock { address: NonNull::dangling(), bytes: 4096, owner: Box::new(()) };
    // SAFETY: the device takes no block.
    let wrapped = unsafe { device.wrap(block) };
    assert_eq!(unsupported(wrapped), "device `plain` cannot use 4096 bytes of host memory in place");
}

#[test]
fn a_queue_is_of_normal_priority_and_an_event_begins_at_zero() {
    let device = Plain::new();
    let queue = device.queue().unwrap();
    let stopped = queue.stop(Submission(1), Error::Cancelled);
    assert_eq!(unsupported(stopped), "this device cannot stop running work");
    let event = device.event().unwrap();
    assert_eq!((event.value(), event.time_ns()), (0, None));
    event.signal(3, 7);
    assert_eq!((event.value(), event.time_ns()), (3, Some(7)), "it is an event of its own");
}

#[test]
fn a_library_lists_nothing_more_and_a_driver_gives_no_reason() {
    let library = Plain::new().compile(&Source::msl("")).unwrap();
    assert!(library.unsupported().is_empty() && library.constants().is_empty());
    assert!(Nothing.absence().is_none());
}

#[test]
fn a_source_keeps_what_is_set() {
    let source = Source::msl("text").math(MathMode::Safe).define("A", Some("1")).check_spaces();
    assert_eq!(source.files[0].text, "text");
    assert_eq!(source.defines, [("A".to_owned(), Some("1".to_owned()))]);
    assert!(source.math == MathMode::Safe && source.check_spaces && !source.include_outside);
    let source = Source::msl("text").math(MathMode::Relaxed).include_outside();
    assert!(source.math == MathMode::Relaxed && source.include_outside && source.include_roots().is_none());
}

#[test]
fn diagnostics_show_the_place_as_far_as_it_is_known() {
    let shown = |line: u32, column: u32, source_line: Option<&str>| {
        let diagnostic = Diagnostic {
            source_line: source_line.map(str::to_owned),
            ..Diagnostic::error("k.metal", line, column, "wrong")
        };
        diagnostic.to_string()
    };
    assert_eq!(shown(0, 0, None), "k.metal: error: wrong");
    assert_eq!(shown(3, 0, None), "k.metal:3: error: wrong");
    assert_eq!(shown(3, 1, None), "k.metal:3:1: error: wrong");
    // Without a column no place in the line is marked.
    assert_eq!(shown(3, 0, Some("x y")), "k.metal:3: error: wrong\n    3 | x y");
    assert_eq!(shown(3, 1, Some("x y")), "k.metal:3:1: error: wrong\n    3 | x y\n      | ^");
    // A column behind the line's end, and one within a character, mark the end.
    assert_eq!(shown(3, 9, Some("x y")), "k.metal:3:9: error: wrong\n    3 | x y\n      |    ^");
    assert_eq!(shown(3, 2, Some("ü")), "k.metal:3:2: error: wrong\n    3 | ü\n      |  ^");
}

#[test]
fn an_error_of_the_compiler_says_all_that_it_said() {
    let mut first = Diagnostic::error("a.metal", 1, 2, "no such name `y`");
    let note = Diagnostic { severity: Severity::Note, ..Diagnostic::error("a.metal", 4, 5, "declared here") };
    first.notes.push(note);
    let warning =
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error("b.metal", 0, 0, "nothing in it") };
    assert_eq!(
        Error::Compile(vec![first, warning]).to_string(),
        "a.metal:1:2: error: no such name `y`\na.metal:4:5: note: declared here\nb.metal: warning: nothing in it"
    );
}

#[test]
fn an_argument_that_the_code_may_write_is_written_whatever_it_is_declared_as() {
    let arg = |index: u32| Arg {
        name: format!("a{index}"),
        kind: ArgKind::Pointer,
        index,
        element: ElementType::Scalar(Scalar::U32),
        element_size: 4,
        element_align: 4,
        access: Access::Read,
        constant: false,
    };
    let signature = Signature {
        name: "k".into(),
        args: (0..66).map(arg).collect(),
        builtins: Vec::new(),
        file: "k.metal".into(),
        line: 1,
        max_threads_per_threadgroup: None,
        code: None,
        logs: Vec::new(),
    };
    let code = CodeFacts { may_write: 1 << 63 | 0b1010, ..CodeFacts::default() };
    let with = signature.with_code(code);
    let written: Vec<u32> =
        with.args.iter().filter(|arg| arg.access == Access::ReadWrite).map(|arg| arg.index).collect();
    // There is no bit for those from 64 on.
    assert_eq!(written, [1, 3, 63, 64, 65]);
    assert_eq!(with.code, Some(code));
}
