//! Programs are captured, replayed, and compared; a kernel that is wrong on another device is found.

use std::path::Path;
use std::sync::Arc;

use elinvar::driver::{Access, Arg, ArgKind, Driver as _, ElementType, Error, Scalar, Signature};
use elinvar::{Buffer, Constants, Device, Graph, Grid, Kernel, Source};
use elinvar_capture::{Capture, CaptureFile, CapturingDevice, Outcome, Replay};
use elinvar_conformance::sim::Sim;
use elinvar_driver_cpu::CpuDriver;

const KERNELS: &str = "
    #include <metal_stdlib>
    using namespace metal;
    constant uint factor [[function_constant(0)]];
    kernel void scale(device const float* x, device float* y, constant float& a, uint i [[thread_position_in_grid]]) { y[i] = a * x[i]; }
    kernel void step(device uint* x, constant uint& c, uint i [[thread_position_in_grid]]) { x[i] = x[i] * factor + c; }
    kernel void sums(device const float* x, device float* y, threadgroup float* part, uint i [[thread_position_in_grid]],
                     uint t [[thread_position_in_threadgroup]], uint g [[threadgroup_position_in_grid]], uint n [[threads_per_threadgroup]]) {
        part[t] = x[i];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (t == 0) { float sum = 0; for (uint k = 0; k < n; ++k) sum += part[k]; y[g] = sum; }
    }
    kernel void out_of_bounds(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = i; }";
const N: usize = 1000;

fn cpu() -> Arc<dyn elinvar::driver::Device> {
    CpuDriver::with_threads(2).devices().unwrap().remove(0)
}

fn replay<'a>(capture: &'a Capture, device: Arc<dyn elinvar::driver::Device>) -> Replay<'a> {
    // SAFETY: the capture was made by this test.
    #[allow(unsafe_code)]
    unsafe { Replay::new(capture, device, 0.0) }.unwrap()
}

/// Launches of all kinds: 200 of them, on two streams, in command buffers, recordings and a graph, with sub-slices, values, threadgroup memory and counts in memory.
#[allow(unsafe_code)] // launches
fn program(device: &Device) {
    let library = device.compile(Source::named("capture.metal", KERNELS)).unwrap();
    let kernel = |name: &str| library.kernel_with(name, &Constants::new().set("factor", 5_u32)).unwrap();
    let [scale, step, sums] = ["scale", "step", "sums"].map(kernel);
    let [one, two] = [0; 2].map(|_| device.stream().unwrap());
    let mut x = device.buffer_with_data(&(0..N).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let mut y = device.buffer::<f32>(N).unwrap();
    let mut z = device.buffer_with_data(&[1_u32; N]).unwrap();
    // SAFETY, here and below: each thread accesses its own elements, which the slices have.
    for round in 0..40_u32 {
        // SAFETY: as above.
        unsafe { scale.launch(&one, Grid::threads(N), (&x, &mut y, 1.5_f32)) }.unwrap();
        // SAFETY: as above.
        unsafe { step.launch(&two, Grid::threads(100).group(50), (z.slice_mut(200..300).unwrap(), round)) }
            .unwrap();
        let mut commands = one.command_buffer();
        commands.copy(&y, &mut x).unwrap();
        // SAFETY: as above.
        unsafe { commands.launch(&scale, Grid::threads(N), (&y, &mut x, 0.5_f32)) }.unwrap();
        commands.submit().unwrap();
    }
    let mut partial = device.buffer::<f32>(10).unwrap();
    let threadgroup = elinvar::Threadgroup::bytes(400);
    // SAFETY: as above.
    unsafe { sums.launch(&one, Grid::threads(N).group(100), (&x, &mut partial, threadgroup)) }.unwrap();
    let counts = device.buffer_with_data(&[5_u32, 1, 1]).unwrap();
    two.synchronize().unwrap();
    // SAFETY: as above.
    unsafe { step.launch(&two, Grid::indirect(&counts).group(64), (&mut z, 3_u32)) }.unwrap();
    two.synchronize().unwrap();
    let mut commands = two.command_buffer();
    // SAFETY: as above.
    unsafe { commands.launch(&step, Grid::threads(N), (&mut z, 7_u32)) }.unwrap();
    let recording = commands.record().unwrap();
    // SAFETY: as above.
    (0..38).for_each(|_| drop(unsafe { two.replay(&recording) }.unwrap()));
    two.synchronize().unwrap();
    let mut graph = Graph::new();
    for c in 0..40_u32 {
        // SAFETY: as above.
        unsafe { graph.launch(&step, Grid::threads(N), (&mut z, c)) }.unwrap();
    }
    // SAFETY: as above.
    unsafe { graph.plan().unwrap().run(&two) }.unwrap().wait().unwrap();
    one.synchronize().unwrap();
    assert!(x.to_vec().unwrap()[2].is_finite() && z.to_vec().unwrap()[0] != 1);
}

/// Captures what `program` does on a device.
fn captured(path: &Path, device: Arc<dyn elinvar::driver::Device>, program: impl FnOnce(&Device)) -> Capture {
    let file = CaptureFile::create(path).unwrap();
    let device = Device::new(CapturingDevice::new(device, file.clone()));
    program(&device);
    drop(device);
    file.flush().unwrap();
    Capture::open(path).unwrap()
}

#[test]
fn two_hundred_launches_replay_to_equal_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let capture = captured(&folder.path().join("capture"), cpu(), program);
    let launches = capture.launches();
    assert_eq!((launches.len(), capture.not_captured()), (200, &[][..]));
    assert!(capture.is_complete() && launches.iter().all(|launch| launch.error.is_none()));
    let of = |kernel: &str| launches.iter().filter(|launch| launch.kernel == kernel).count();
    assert_eq!((of("scale"), of("step"), of("sums")), (80, 119, 1));
    let mut replay = replay(&capture, cpu());
    for number in 0..200 {
        let outcome = replay.launch(number).unwrap();
        assert!(matches!(outcome, Outcome::Equal), "launch {number}: {outcome:?}");
    }
    assert!(replay.launch(200).is_err());
    // It is compressed, and unchanged contents are in it once.
    let bytes = std::fs::metadata(folder.path().join("capture")).unwrap().len();
    assert!(bytes < 200 * 2 * 4 * N as u64, "{bytes}");
}

/// A device on which `scale` is wrong for one element, from the given value of `a` on.
fn wrong_device(from: f32) -> Arc<Sim> {
    let sim = Sim::new();
    let pointer = |name: &str, access| Arg {
        name: name.into(),
        kind: ArgKind::Pointer,
        index: 0,
        element: ElementType::Scalar(Scalar::F32),
        element_size: 4,
        element_align: 4,
        access,
        constant: false,
    };
    let a = Arg { kind: ArgKind::Reference, constant: true, ..pointer("a", Access::Read) };
    let signature = Signature {
        name: "scale".into(),
        args: vec![pointer("x", Access::Read), pointer("y", Access::ReadWrite), a],
        builtins: Vec::new(),
        file: "capture.metal".into(),
        line: 1,
        max_threads_per_threadgroup: None,
        code: None,
        logs: Vec::new(),
    };
    sim.add_kernel_with(signature, move |launch| {
        let floats = |index| -> Result<Vec<f32>, Error> {
            Ok(launch
                .bytes(index)?
                .chunks(4)
                .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
                .collect())
        };
        let (x, a) = (floats(0)?, floats(2)?[0]);
        let mut y: Vec<f32> = x.iter().map(|x| a * x).collect();
        if a >= from {
            y[17] = -1.0;
        }
        launch.write(1, &y.iter().flat_map(|y| y.to_le_bytes()).collect::<Vec<u8>>())
    });
    sim
}

#[allow(unsafe_code)] // launches
fn scales(device: &Device) {
    let scale = device.compile(Source::named("capture.metal", KERNELS)).unwrap().kernel("scale").unwrap();
    let (stream, x) = (device.stream().unwrap(), device.buffer_with_data(&[2.0_f32; N]).unwrap());
    let mut y: Buffer<f32> = device.buffer(N).unwrap();
    for a in 0..50 {
        // SAFETY: each thread accesses its own element.
        unsafe { scale.launch(&stream, Grid::threads(N), (&x, &mut y, a as f32)) }.unwrap();
    }
    stream.synchronize().unwrap();
}

#[test]
fn a_kernel_that_is_wrong_elsewhere_is_found_and_cut_out() {
    let folder = tempfile::tempdir().unwrap();
    let capture = captured(&folder.path().join("capture"), cpu(), scales);
    let (sim, mut found) = (wrong_device(31.0), Vec::new());
    let mut on_sim = replay(&capture, sim.clone());
    for number in 0..50 {
        let outcome = on_sim.launch(number).unwrap();
        if outcome.is_wrong() {
            found.push((number, outcome));
        }
    }
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (31..50).collect::<Vec<_>>());
    let Outcome::Differs(differences) = &found[0].1 else { panic!("{found:?}") };
    let text = "element 17 of argument 1 `y` is -1, captured was 62; 1 of 1000 elements differ";
    assert_eq!(differences.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    // The file with that launch alone shows the same.
    let one = folder.path().join("one");
    capture.save_one(31, &one).unwrap();
    let one = Capture::open(&one).unwrap();
    assert_eq!(one.launches(), [capture.launches()[31].clone()]);
    assert!(replay(&one, sim).launch(0).unwrap().is_wrong());
    assert!(matches!(replay(&one, cpu()).launch(0).unwrap(), Outcome::Equal));
}

#[test]
fn failures_are_captured_and_fail_again() {
    let folder = tempfile::tempdir().unwrap();
    let capture = captured(&folder.path().join("capture"), cpu(), |device| {
        let library = device.compile(Source::named("capture.metal", KERNELS)).unwrap();
        let (checked, stream) = (library.checked_kernel("out_of_bounds").unwrap(), device.stream().unwrap());
        let mut x = device.buffer::<u32>(10).unwrap();
        assert!(checked.launch(&stream, Grid::threads(11), (&mut x,)).unwrap().wait().is_err());
        // Poisoned work did not run.
        assert!(checked.launch(&stream, Grid::threads(10), (&mut x,)).unwrap().wait().is_err());
        stream.acknowledge();
        x.write(&[0; 10]).unwrap();
        checked.launch(&stream, Grid::threads(10), (&mut x,)).unwrap().wait().unwrap();
    });
    let launches = capture.launches();
    assert_eq!(launches.len(), 2, "{launches:?}");
    assert!(launches[0].error.as_ref().is_some_and(|error| error.contains("out_of_bounds")), "{launches:?}");
    let mut replay = replay(&capture, cpu());
    assert!(matches!(replay.launch(0).unwrap(), Outcome::FailsAgain(Error::Fault(_))));
    assert!(matches!(replay.launch(1).unwrap(), Outcome::Equal));
}

/// Argument buffers whose structs point to others, of which a kernel writes one; memory at several offsets; a struct by value.
#[allow(unsafe_code)] // launches
fn with_addresses(device: &Device) {
    let text = "struct Node { device uint* x; device Node* next; uint n; };
        kernel void walk(constant Node& first, constant uint& steps, uint i [[thread_position_in_grid]]) {
            device uint* x = first.x;
            device Node* next = first.next;
            for (uint k = 0; k < steps; ++k) { if (i < next->n) next->x[i] += x[i] + k; x = next->x; next = next->next; }
        }
        kernel void link(device Node* nodes, uint i [[thread_position_in_grid]]) { nodes[i].next = nodes + (i + 1) % 3; }";
    let library = device.compile(Source::msl(text)).unwrap();
    let [walk, link] = ["walk", "link"].map(|name| library.kernel(name).unwrap());
    let mut xs: Vec<Buffer<u32>> =
        (0..3).map(|k| device.buffer_with_data(&vec![k + 1; 100]).unwrap()).collect();
    let nodes: Vec<[u64; 3]> = xs.iter().map(|x| [x.gpu_address().unwrap() + 40, 0, 90]).collect();
    let mut nodes = device.buffer_with_data(&nodes).unwrap();
    let stream = device.stream().unwrap();
    let uses = |xs: &mut Vec<Buffer<u32>>, nodes: &mut Buffer<[u64; 3]>, first: &[u64; 3]| {
        let mut list = vec![elinvar::Arg::value(first), elinvar::Arg::value(&7_u32)];
        list.extend(xs.iter_mut().map(|x| elinvar::Arg::use_resource(x.slice_mut(10..100).unwrap())));
        list.push(elinvar::Arg::use_resource(nodes));
        // SAFETY: the nodes are a ring, whose memory is used, and threads have elements of their own.
        unsafe { walk.launch(&stream, Grid::threads(90), list) }.unwrap();
    };
    // SAFETY: there are three nodes.
    unsafe {
        link.launch(
            &stream,
            Grid::threads(3),
            vec![elinvar::Arg::from(&mut nodes), elinvar::Arg::use_resource(&mut xs[0])],
        )
    }
    .unwrap();
    let (first, at) = (nodes.gpu_address().unwrap(), xs[2].gpu_address().unwrap() + 40);
    uses(&mut xs, &mut nodes, &[at, first, 90]);
    uses(&mut xs, &mut nodes, &[at, first + 24, 90]);
    stream.synchronize().unwrap();
    assert_eq!(xs[0].to_vec().unwrap()[..10], [1; 10]);
    assert_ne!(xs[0].to_vec().unwrap()[10..], [1; 90]);
}

#[test]
fn launches_with_argument_buffers_replay_at_other_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture");
    let capture = captured(&path, cpu(), with_addresses);
    assert!(capture.not_captured().is_empty(), "{:?}", capture.not_captured());
    let kernels: Vec<String> = capture.launches().into_iter().map(|launch| launch.kernel).collect();
    assert_eq!(kernels, ["link", "walk", "walk"]);
    // The process that captured has freed its memory, whose addresses are given to others meanwhile.
    let device = cpu();
    let others: Vec<_> = (0..16)
        .map(|_| {
            device.allocate(1 << 12, elinvar::driver::Storage::Shared, elinvar::driver::Init::Zeroed).unwrap()
        })
        .collect();
    let mut replay = replay(&capture, device);
    for number in [2, 0, 1, 2] {
        assert!(
            matches!(replay.launch(number).unwrap(), Outcome::Equal),
            "launch {number}: {:?}",
            replay.launch(number)
        );
    }
    let zeros = vec![0; 1 << 12];
    for memory in &others {
        let mut content = vec![1; 1 << 12];
        // SAFETY: nothing uses this memory.
        #[allow(unsafe_code)]
        unsafe { memory.read(0, &mut content) }.unwrap();
        assert_eq!(content, zeros, "a replayed launch wrote memory of others");
    }
    // A launch alone keeps what it uses.
    let cut = folder.path().join("cut");
    capture.save_one(2, &cut).unwrap();
    let cut = Capture::open(&cut).unwrap();
    assert!(matches!(self::replay(&cut, cpu()).launch(0).unwrap(), Outcome::Equal));
    // A device without addresses.
    let simulated = self::replay(&capture, wrong_device(1.0)).launch(1).unwrap();
    assert!(matches!(simulated, Outcome::NotRun(_)), "{simulated:?}");
}

#[test]
fn a_difference_in_used_memory_is_found() {
    let folder = tempfile::tempdir().unwrap();
    // It writes a part of an address, which is another in the replay: the memory stays allocated until then.
    let text = "struct Args { device uint* x; };
        kernel void through(constant Args& args, uint i [[thread_position_in_grid]]) { args.x[i] = i < 7 ? i : uint(ulong(args.x) >> 6); }";
    let mut kept = None;
    let capture = captured(&folder.path().join("capture"), cpu(), |device| {
        let kernel: Kernel = device.compile(Source::msl(text)).unwrap().kernel("through").unwrap();
        let mut x = device.buffer::<u32>(10).unwrap();
        let args = device.buffer_with_data(&[x.gpu_address().unwrap()]).unwrap();
        let stream = device.stream().unwrap();
        let list = vec![elinvar::Arg::from(&args), elinvar::Arg::use_resource(&mut x)];
        // SAFETY: there are as many threads as elements, and the buffer is declared as used.
        #[allow(unsafe_code)]
        unsafe { kernel.launch(&stream, Grid::threads(10), list) }.unwrap();
        stream.synchronize().unwrap();
        kept = Some(x);
    });
    let outcome = replay(&capture, cpu()).launch(0).unwrap();
    let Outcome::Differs(differences) = &outcome else { panic!("{outcome:?}") };
    let [only] = &differences[..] else { panic!("{differences:?}") };
    assert_eq!((&only.argument, only.element, only.count), (&(1, "used memory 0".into()), 7, (3, 10)));
}

#[test]
fn what_cannot_be_captured_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let capture = captured(&folder.path().join("capture"), cpu(), |device| {
        let scale = device.compile(Source::msl(KERNELS)).unwrap().kernel("scale").unwrap();
        let (x, mut y) = (device.buffer::<f32>(1 << 28).unwrap(), device.buffer::<f32>(10).unwrap());
        let stream = device.stream().unwrap();
        // SAFETY: there are as many threads as elements.
        #[allow(unsafe_code)]
        unsafe { scale.launch(&stream, Grid::threads(10), (&x, &mut y, 1.0_f32)) }.unwrap();
        stream.synchronize().unwrap();
    });
    assert_eq!(capture.launches(), []);
    let [only] = capture.not_captured() else { panic!("{:?}", capture.not_captured()) };
    assert_eq!(
        (&*only.what, &*only.reason),
        ("kernel `scale`", "it uses 1073741864 bytes, more than 1073741824")
    );
}

#[test]
fn damaged_files_are_errors_and_cut_ones_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("capture");
    let whole = captured(&path, cpu(), scales);
    let exists = CaptureFile::create(&path).unwrap_err().to_string();
    assert!(exists.starts_with("capture to `") && exists.contains("exists"), "{exists}");
    let bytes = std::fs::read(&path).unwrap();
    let with = |bytes: &[u8]| {
        std::fs::write(folder.path().join("other"), bytes).unwrap();
        Capture::open(folder.path().join("other"))
    };
    let cut = with(&bytes[..bytes.len() - 5]).unwrap();
    assert!(!cut.is_complete() && whole.is_complete());
    assert_eq!(cut.launches().len(), 49);
    let text = |result: Result<Capture, Error>| result.unwrap_err().to_string();
    assert!(text(with(b"something else")).contains("it is no capture of this version"));
    // Every byte of the first records and of the last, and each of them wrong.
    for at in (0..1000).chain(bytes.len() - 300..bytes.len()) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        if let Ok(read) = with(&damaged) {
            // A length that is too large looks like the end of the file.
            assert!(!read.is_complete(), "byte {at}");
        }
    }
    assert!(text(Capture::open(folder.path().join("none"))).contains("none"));
}

#[test]
fn included_files_are_in_the_capture() {
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("headers");
    std::fs::create_dir_all(headers.join("deep")).unwrap();
    std::fs::write(headers.join("outer.h"), "#include \"deep/factor.h\"\n").unwrap();
    std::fs::write(headers.join("deep/factor.h"), "#define FACTOR 3\n").unwrap();
    let path = folder.path().join("program.capture");
    let capture = captured(&path, cpu(), |device| {
        let text = "
            #include <outer.h>
            kernel void scale(device uint* x, uint i [[thread_position_in_grid]]) { x[i] *= FACTOR; }";
        let mut source = Source::named("scale.metal", text);
        source.include_dirs.push(headers.clone());
        let kernel = device.compile(source).unwrap().kernel("scale").unwrap();
        let mut x = device.buffer_with_data(&[1_u32, 2, 3]).unwrap();
        // SAFETY: there are as many threads as elements.
        #[allow(unsafe_code)]
        unsafe { kernel.launch(&device.stream().unwrap(), Grid::threads(3), (&mut x,)) }
            .unwrap()
            .wait()
            .unwrap();
    });
    // Another machine does not have them.
    std::fs::remove_dir_all(&headers).unwrap();
    let outcome = replay(&capture, cpu()).launch(0).unwrap();
    assert!(matches!(outcome, Outcome::Equal), "{outcome:?}");
}
