//! Reports: their data, and the page in a browser.

use std::path::Path;
use std::process::Command;

use elinvar::{
    Device, Error, Grid, ProfileCommand, ProfileEvent, ProfileLine, ProfileRoofs, ProfileSpan,
    ProfileSubmission, ProfileWork, Source, TraceDetail,
};
use elinvar_conformance::sim::{Op, Sim};
use elinvar_telemetry::{report, report_of, report_of_lines};
use serde_json::Value as Json;

use crate::support::{device, kernel, launch};

/// The data of a page.
fn data(page: &str) -> Json {
    let (_, rest) = page.split_once(r#"id="data">"#).unwrap();
    let (data, after) = rest.split_once("</script>").unwrap();
    assert_eq!(after.matches("</script>").count(), 1, "only the program follows");
    serde_json::from_str(data).unwrap()
}

fn line(event: ProfileEvent) -> String {
    format!("{}\n", serde_json::to_string(&ProfileLine { process: 1, device: 0, event }).unwrap())
}

/// A submission of one launch from `at` on, of 10 ns on the host, and of `time` on the device 100 ns later.
fn submission(number: u64, at: u64, time: u64, name: &str) -> ProfileSubmission {
    let executed = Some(ProfileSpan { begin_ns: at + 100, end_ns: at + 100 + time, is_measured: true });
    let command = ProfileCommand {
        name: name.into(),
        is_launch: true,
        is_work: true,
        label: None,
        threads: Some([64, 2, 1]),
        group: Some([32, 1, 1]),
        bytes: Some(1000),
        work: Some(ProfileWork { flops: 500.0, bytes: 250.0 }),
        origin: None,
        host_ns: [at, at + 10],
        executed,
        error: None,
    };
    ProfileSubmission {
        number,
        stream: 3,
        recorded_ns: [at, at + 10],
        completed_ns: Some([at + 100 + time, at + 200 + time]),
        executed,
        command_count: 1,
        commands: vec![command],
        error: None,
        notes: Vec::new(),
    }
}

const HOSTILE: &str = "</script><script>alert(1)</script><!-- \u{2028}'\"\\ 🦀 <img src=x onerror=alert(2)>";

/// A launch of each name, and one that failed.
fn hostile() -> String {
    let long = "k".repeat(20_000);
    let names = [HOSTILE, &long, "", "constructor", "__proto__"];
    let launches = names.iter().zip(0..).map(|(name, at)| submission(at, 1000 * at, 500, name));
    let mut failed = submission(9, 9000, 1, HOSTILE);
    (failed.error, failed.commands[0].error) = (Some(HOSTILE.into()), Some(HOSTILE.into()));
    let all = launches.chain([failed]);
    all.map(|submission| line(ProfileEvent::Submission(submission))).collect()
}

/// 100 000 slices.
fn many() -> String {
    let launches =
        (0..33_334).map(|at| submission(at, 50_000 * at, 700 + at % 100, ["tiny", "other"][at as usize % 2]));
    launches.map(|submission| line(ProfileEvent::Submission(submission))).collect()
}

/// The report of a device that has launched a kernel 40 times, and failed once.
fn of_a_device() -> String {
    let device = device();
    let triple = kernel(&device, "triple");
    let (stream, mut x) = (device.stream().unwrap(), device.buffer::<u32>(4096).unwrap());
    device.trace().start_with(100_000, TraceDetail::Launches);
    for _ in 0..40 {
        launch(&triple, &stream, &mut x).wait().unwrap();
    }
    device.trace().stop();
    let sim = Sim::named("the failing one");
    let failing = Device::new(sim.clone());
    let (stream, mut x) = (failing.stream().unwrap(), failing.buffer::<u32>(1).unwrap());
    failing.trace().start(100);
    sim.fail_next(Op::Execute, Error::Environment("injected".into()));
    assert!(stream.fill(&mut x, 1).unwrap().wait().is_err());
    failing.trace().stop();
    report(&[&device, &failing].map(|device| (device.trace().timeline(), device.metrics())))
}

pub fn a_report_has_what_the_devices_did() {
    let page = of_a_device();
    for scheme in ["http:", "https:", "//cdn", "@import", "url("] {
        assert!(!page.contains(scheme), "{scheme}");
    }
    let data = data(&page);
    let kernels = data["kernels"].as_array().unwrap();
    let triple = kernels.iter().find(|kernel| kernel["name"] == "triple").unwrap();
    assert!(triple["launches"] == 40 && triple["measured"] == 40 && triple["share"] == 1.0, "{triple}");
    assert_eq!(triple["bytes"], 40 * 4096 * 4);
    assert!(
        triple["total_ns"].as_u64() >= triple["p99_ns"].as_u64()
            && triple["p99_ns"].as_u64() >= triple["median_ns"].as_u64()
    );
    let failures = data["failures"].as_array().unwrap();
    assert!(
        failures.len() == 1 && failures[0]["text"].as_str().unwrap().contains("injected"),
        "{failures:?}"
    );
    assert_eq!(data["devices"][1]["name"], "the failing one");
    assert!(!data["devices"][0]["memory"].as_array().unwrap().is_empty());
}

pub fn figures_of_kernels_and_advice_are_those_of_the_lines() {
    let lines = (0..100).map(|at| submission(at, 1_000 * at, 1 + at, "k"));
    let lines: String = lines.map(|submission| line(ProfileEvent::Submission(submission))).collect();
    let of_few = data(&report_of_lines(&lines).unwrap());
    let k = &of_few["kernels"][0];
    assert!(k["total_ns"] == 5050 && k["mean_ns"] == 50 && k["median_ns"] == 50 && k["p99_ns"] == 99, "{k}");
    assert!(k["bytes"] == 100_000 && k["host_ns"] == 1000, "{k}");
    // Recording takes 1000 ns of 99 000: no advice.
    assert_eq!(of_few["advice"], Json::Array(Vec::new()));
    // Recording takes all the time in which the device is idle.
    let slow = (0..100).map(|at| {
        let mut slow = submission(at, 1_000 * at, 100, "k");
        slow.recorded_ns = [1_000 * at, 1_000 * at + 990];
        slow.commands[0].host_ns = slow.recorded_ns;
        line(ProfileEvent::Submission(slow))
    });
    let advice = data(&report_of_lines(&slow.collect::<String>()).unwrap())["advice"].clone();
    let texts: Vec<&str> = advice.as_array().unwrap().iter().map(|it| it["text"].as_str().unwrap()).collect();
    // 99 gaps of 900 ns from 100 to 99 200; of each, the host does not record for 10 ns.
    assert!(texts[0].contains("89.10 µs of 99.10 µs (90 %); during 88.11 µs of that"), "{texts:?}");
    assert!(
        texts[1].contains("100 launches have a median of 100 ns, 10.00 µs in total") && texts.len() == 2,
        "{texts:?}"
    );
}

pub fn hostile_names_stay_data() {
    let page = report_of_lines(&hostile()).unwrap();
    let data = data(&page);
    assert_eq!(data["failures"][0]["text"], HOSTILE);
    assert!(data["kernels"].as_array().unwrap().iter().any(|kernel| kernel["name"] == HOSTILE));
    assert!(!page.contains("<img"));
}

/// The `html` tag of a page after its program has run, and the whole document.
fn rendered(browser: &Path, page: &str, view: &str) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    std::fs::write(&file, page).unwrap();
    let mut command = Command::new(browser);
    command.args([
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=20000",
        "--dump-dom",
    ]);
    command.arg(format!("--user-data-dir={}", folder.path().join("user").display()));
    let output = command.arg(format!("file://{}{view}", file.display())).output().unwrap();
    let document = String::from_utf8(output.stdout).unwrap();
    let begin =
        document.find("<html").unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let tag = document[begin..].split('>').next().unwrap().to_owned();
    (tag, document)
}

#[track_caller]
fn expect(tag: &str, attributes: &[(&str, u64)]) {
    assert!(tag.contains(r#"data-ready="true""#), "{tag}");
    for (name, value) in attributes {
        assert!(tag.contains(&format!(r#"data-{name}="{value}""#)), "{name} is not {value}: {tag}");
    }
}

pub fn a_browser_shows_what_the_devices_did(browser: &Path) {
    let (tag, document) = rendered(browser, &of_a_device(), "#search=triple&theme=dark");
    // Of each launch the submission, the command, and its execution; of the fill, too.
    expect(&tag, &[("slices", 123), ("kernels", 2), ("failures", 1), ("found", 120)]);
    assert!(tag.contains(r#"data-theme="dark""#), "{tag}");
    assert!(
        document.contains("120 slices") && document.contains("injected") && document.contains("triple</td>")
    );
}

pub fn a_browser_shows_hostile_names_and_nothing(browser: &Path) {
    let (tag, document) = rendered(browser, &report_of_lines(&hostile()).unwrap(), "");
    expect(&tag, &[("slices", 18), ("kernels", 5), ("failures", 1)]);
    assert!(document.contains("&lt;img src=x onerror=alert(2)&gt;") && !document.contains("<img"));
    let (tag, document) = rendered(browser, &report_of_lines("").unwrap(), "");
    expect(&tag, &[("slices", 0), ("kernels", 0), ("failures", 0), ("advice", 0)]);
    assert!(document.contains("Nothing failed."));
}

pub fn a_browser_draws_what_is_visible_of_many_slices(browser: &Path) {
    let page = report_of_lines(&many()).unwrap();
    let drawn = |view: &str| -> u64 {
        let (tag, _) = rendered(browser, &page, view);
        expect(&tag, &[("slices", 100_002), ("kernels", 2)]);
        let (_, rest) = tag.split_once(r#"data-drawn=""#).unwrap();
        rest.split('"').next().unwrap().parse().unwrap()
    };
    // At most one a pixel of each of the three rows.
    let all = drawn("");
    assert!((300..6000).contains(&all), "{all}");
    // Ten launches.
    let few = drawn("#from=0&to=490000");
    assert_eq!(few, 30);
}

/// What a launch computes follows from the kernel's code, its size and its inline arguments; the roofline is drawn where roofs are known.
fn of_work() -> String {
    let device = device();
    let text = "
        #include <metal_stdlib>
        kernel void grow(device float* x, constant uint& n, constant uint& rounds, uint i [[thread_position_in_grid]])
        {
            if (i >= n) return;
            float value = x[i];
            for (uint round = 0; round < rounds; round++) value = metal::fma(value, 1.5f, 2.0f);
            x[i] = value;
        }
        kernel void of_memory(device uint* x, device const uint* rounds, uint i [[thread_position_in_grid]])
        {
            float value = x[i];
            for (uint round = 0; round < rounds[0]; round++) value = metal::fma(value, 1.5f, 2.0f);
            x[i] = uint(value);
        }";
    let library = device.compile(Source::named("work.metal", text)).unwrap();
    let [grow, of_memory] = ["grow", "of_memory"].map(|name| library.kernel(name).unwrap());
    let (stream, mut x) = (device.stream().unwrap(), device.buffer::<f32>(4096).unwrap());
    let (mut y, rounds) = (device.buffer::<u32>(64).unwrap(), device.buffer_with_data(&[3_u32]).unwrap());
    device.trace().start_with(100_000, TraceDetail::Arguments);
    // 4000 of 4096 threads, and both in one submission, and replayed.
    let mut commands = stream.command_buffer();
    for rounds in [10_u32, 30] {
        // SAFETY: each thread accesses its own element, below `n`.
        #[allow(unsafe_code)]
        unsafe { commands.launch(&grow, Grid::threads(4096), (&mut x, 4000_u32, rounds)) }.unwrap();
    }
    let recording = commands.record().unwrap();
    for _ in 0..2 {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe { stream.replay(&recording) }.unwrap().wait().unwrap();
    }
    crate::support::launch_with(&grow, &stream, 4096, (&mut x, 4000_u32, 5_u32)).wait().unwrap();
    crate::support::launch_with(&of_memory, &stream, 64, (&mut y, &rounds)).wait().unwrap();
    device.trace().stop();
    let mut lines = ProfileLine::of(0, &device.trace().timeline(), &device.metrics());
    let roofs = ProfileRoofs { flops: 2e9, bandwidth: 1e9 };
    lines.push(ProfileLine { process: std::process::id(), device: 0, event: ProfileEvent::Roofs(roofs) });
    report_of(&lines)
}

pub fn work_of_launches_is_in_the_report() {
    let of_page = data(&of_work());
    let kernels = of_page["kernels"].as_array().unwrap();
    let named = |name: &str| kernels.iter().find(|kernel| kernel["name"] == name).unwrap();
    let grow = named("grow");
    assert_eq!(grow["flops"].as_f64(), Some(4000.0 * 2.0 * f64::from(2 * (10 + 30) + 5)));
    // Each launch reads and writes 4000 elements, and reads two arguments, each in a sector of 32 bytes.
    assert_eq!(grow["touched"].as_f64(), Some(5.0 * (2.0 * 4000.0 * 4.0 + 2.0 * 32.0)));
    assert_eq!(grow["work_ns"], grow["total_ns"]);
    // How often it loops depends on memory.
    assert!(named("of_memory")["flops"] == 0.0 && named("of_memory")["work_ns"] == 0, "{kernels:?}");
    assert_eq!(of_page["devices"][0]["roofs"]["flops"], 2e9);
}

pub fn a_browser_draws_the_roofline(browser: &Path) {
    let (tag, document) = rendered(browser, &of_work(), "");
    expect(&tag, &[("kernels", 2)]);
    assert!(document.contains("2 GFLOP/s of fused multiply-adds, 1 GB/s of a copy"), "{document}");
    assert!(document.contains(r#"id="roofline-section" aria-labelledby="roofline-title">"#), "{document}");
    // Without roofs there is none.
    let (_, document) = rendered(browser, &of_a_device(), "");
    assert!(
        document.contains(r#"id="roofline-section" aria-labelledby="roofline-title" hidden="">"#),
        "{document}"
    );
}
