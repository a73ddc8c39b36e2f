//! Results are never stale: what is kept of a source that includes files is what these files give now.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use elinvar_cache::Cache;
use elinvar_driver::Source;
use elinvar_msl::{CachedProgram, Error, Toolchain};

/// Folders with names that must be escaped somewhere on the way, and a cache that all tests share.
struct Place {
    folder: tempfile::TempDir,
    toolchain: Toolchain,
}

/// Declares a kernel whose name tells the macros' values.
const KERNEL: &str = "
#ifndef V
#define V none
#endif
#ifndef W
#define W none
#endif
#define JOIN_(a, b, c) a##_##b##_##c
#define JOIN(a, b, c) JOIN_(a, b, c)
kernel void JOIN(k, V, W)(device int* out [[buffer(0)]]) { out[0] = 1; }
";

impl Place {
    fn new() -> Self {
        static CACHE: std::sync::LazyLock<tempfile::TempDir> =
            std::sync::LazyLock::new(|| tempfile::tempdir().unwrap());
        let cache = Cache::at(CACHE.path(), 1 << 30, "test");
        Self { folder: tempfile::tempdir().unwrap(), toolchain: Toolchain::find_with(&cache).unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // With an old time, as a file has that was unpacked or moved.
        let mut file = fs::File::create(&path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    }

    fn source(&self, text: &str, folders: &[&str]) -> Source {
        let source = Source::msl(format!("{text}\n{KERNEL}"));
        folders.iter().fold(source, |source, folder| source.include_dir(self.path(folder)))
    }

    fn name(&self, source: &Source) -> Result<String, String> {
        name(&self.toolchain, source)
    }

    fn expect(&self, source: &Source, name: &str) {
        for turn in ["compiled", "found"] {
            assert_eq!(self.name(source).as_deref(), Ok(name), "{turn}");
        }
    }
}

/// The name of the kernel, or the first message.
fn name(toolchain: &Toolchain, source: &Source) -> Result<String, String> {
    match CachedProgram::new(toolchain, source) {
        Ok(checked) => Ok(checked.kernels()[0].name.clone()),
        Err(Error::Compile(found)) => Err(found[0].to_string()),
        Err(other) => panic!("{other}"),
    }
}

const ODD: [&str; 12] = [
    "plain",
    "größe 日本",
    "tab\there",
    "new\nline",
    "elinvar_stdlib",
    "a/elinvar_stdlib/include/b",
    "quo\"te'",
    "back\\slash\\n",
    "a: error: 100%",
    "$HOME {x} # y",
    "x:1:2: error: z",
    "\u{7f}\u{1}",
];

#[test]
fn an_edited_header_is_seen_in_folders_of_any_name() {
    let place = Place::new();
    for odd in ODD {
        let header = format!("{odd}/in/v é.h");
        let source = place.source("#include \"in/v é.h\"", &[odd]);
        for value in ["1", "2", "1"] {
            place.write(&header, &format!("#define V {value}"));
            place.expect(&source, &format!("k_{value}_none"));
        }
    }
}

#[test]
fn errors_name_the_file_in_folders_of_any_name() {
    let place = Place::new();
    for odd in [ODD[1], ODD[3], ODD[4], ODD[10]] {
        let source = place.source("#include <a.h>", &[odd]);
        let file = place.path(odd).join("a.h").display().to_string();
        for (text, line, what) in [
            ("#define V 1\n#error here\n", 2, "here"),
            ("\nfloat x = missing;\n", 2, "use of undeclared identifier 'missing'"),
            ("\n\n#include \"none.h\"\n", 3, "'none.h' file not found"),
        ] {
            place.write(&format!("{odd}/a.h"), text);
            let Err(Error::Compile(found)) = CachedProgram::new(&place.toolchain, &source) else {
                panic!("{odd}: compiled");
            };
            assert_eq!((found[0].file.as_str(), found[0].line), (file.as_str(), line), "{}", found[0]);
            assert!(found[0].message.contains(what), "{}", found[0]);
            assert_eq!(found[0].source_line.as_deref(), text.lines().nth(line as usize - 1));
        }
    }
}

#[test]
fn a_file_that_comes_is_seen() {
    let place = Place::new();
    place.write("one/deep/a.h", "#include \"b.h\"\n#include <c.h>\n#include \"../up.h\"\n");
    for name in ["two/b.h", "two/c.h", "one/up.h"] {
        place.write(name, "");
    }
    let source = place.source("#include \"deep/a.h\"\n#include <metal_stdlib>", &["zero", "one", "two"]);
    place.expect(&source, "k_none_none");
    // Each is found before those that are there: beside the file, in an earlier folder, and in place of our own.
    for (value, name) in
        ["one/deep/b.h", "one/c.h", "zero/c.h", "zero/deep/a.h", "zero/metal_stdlib"].iter().enumerate()
    {
        place.write(name, &format!("#undef V\n#define V {value}"));
        place.expect(&source, &format!("k_{value}_none"));
    }
    for name in ["zero/deep/a.h", "zero/metal_stdlib", "zero/c.h"] {
        fs::remove_file(place.path(name)).unwrap();
    }
    place.expect(&source, "k_1_none");
}

#[test]
fn the_next_of_a_name_is_seen() {
    let place = Place::new();
    place.write("one/a.h", "#define V 1\n#include_next <a.h>\n");
    place.write("three/a.h", "#define W 3\n");
    let source = place.source("#include <a.h>", &["one", "two", "three"]);
    place.expect(&source, "k_1_3");
    place.write("two/a.h", "#define W 2\n");
    place.expect(&source, "k_1_2");
}

#[test]
fn a_header_that_is_asked_for_is_seen_when_it_comes() {
    let forms = [
        "#if __has_include(\"x.h\")\n#define V 1\n#endif",
        "#define HAS __has_include\n#if HAS(<x.h>)\n#define V 1\n#endif",
        "#define GLUE_(a, b) a##b\n#define GLUE(a, b) GLUE_(a, b)\n#if GLUE(__has_, include)(\"x.h\")\n#define V 1\n#endif",
        "#if __has_inc\\\nlude(\"x.h\")\n#define V 1\n#endif",
        "#ifdef __has_include\n#if 0 || __has_include(<x.h>)\n#define V 1\n#endif\n#endif",
        "#if __has_embed(\"x.h\")\n#define V 1\n#endif",
        "#include \"forms.h\"",
    ];
    let place = Place::new();
    place.write("one/forms.h", &forms[2].replace("__has_", "__has\\\n_"));
    for form in forms {
        let source = place.source(form, &["zero", "one"]);
        place.expect(&source, "k_none_none");
        place.write("zero/x.h", "x");
        place.expect(&source, "k_1_none");
        fs::remove_file(place.path("zero/x.h")).unwrap();
        place.expect(&source, "k_none_none");
    }
}

#[test]
fn a_word_that_is_only_mentioned_does_not_prevent_keeping() {
    let place = Place::new();
    let text = "#ifdef __has_include\n#define V 1\n#endif\n#if 0\n#if __has_include(<x.h>)\n#endif\n#endif\n// __DATE__\n";
    let source = place.source(text, &["one"]);
    assert!(CachedProgram::new(&place.toolchain, &source).unwrap().key("x", "k_1_none", &[]).is_some());
    for text in ["constant char when[] = __DATE__;", "#if __has_include(<x.h>)\n#endif"] {
        let source = place.source(text, &["one"]);
        assert!(
            CachedProgram::new(&place.toolchain, &source).unwrap().key("x", "k", &[]).is_none(),
            "{text}"
        );
    }
}

#[test]
fn embedded_bytes_are_seen() {
    let place = Place::new();
    let text = "constant char bytes[] = {\n#embed \"sub/n.bin\"\n};\n\
                template <int> struct S;\ntemplate <> struct S<2> { static constant constexpr int v = 2; };\n\
                template <> struct S<3> { static constant constexpr int w = 3; };\nconstant int x = S<sizeof(bytes)>::v;\n";
    let source = place.source(text, &["zero", "one"]);
    place.write("one/sub/n.bin", "ab");
    place.expect(&source, "k_none_none");
    place.write("zero/sub/n.bin", "abc");
    let error = place.name(&source).unwrap_err();
    assert!(error.contains("no member named 'v'"), "{error}");
    place.write("zero/sub/n.bin", "xy");
    place.expect(&source, "k_none_none");
}

#[test]
fn links_that_are_swapped_are_seen() {
    let place = Place::new();
    place.write("first/in/a.h", "#define V 1\n");
    place.write("second/in/a.h", "#define V 2\n");
    let source = place.source("#include <in/a.h>", &["link"]);
    for (folder, name) in [("first", "k_1_none"), ("second", "k_2_none"), ("first", "k_1_none")] {
        let _none = fs::remove_file(place.path("link"));
        symlink(place.path(folder), place.path("link")).unwrap();
        place.expect(&source, name);
    }
    // The same file under two names counts once, two equal files count twice.
    place.write("once/a.h", "#pragma once\n#ifdef V\n#define W 1\n#endif\n#define V 1\n");
    symlink("a.h", place.path("once/b.h")).unwrap();
    let source = place.source("#include <a.h>\n#include <b.h>", &["once"]);
    place.expect(&source, "k_1_none");
    fs::remove_file(place.path("once/b.h")).unwrap();
    fs::copy(place.path("once/a.h"), place.path("once/b.h")).unwrap();
    place.expect(&source, "k_1_1");
}

/// Says that it is over, after a failure as well.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn files_that_change_while_they_are_compiled_leave_nothing_stale() {
    let place = Place::new();
    place.write("first/a.h", "#include \"b.h\"\n#define V 1\n");
    place.write("first/b.h", "#define W 1\n");
    place.write("second/a.h", "#include \"b.h\"\n#define V 2\n");
    place.write("second/b.h", "#define W 2\n");
    let turn = |folder: &str| {
        let next = place.path("next");
        symlink(folder, &next).unwrap();
        fs::rename(&next, place.path("link")).unwrap();
    };
    turn("first");
    let source = |salt: usize| place.source(&format!("// {salt}\n#include <a.h>"), &["link"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _at_end = Stop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                ["second", "first"].into_iter().for_each(turn);
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        for salt in 0..6 {
            let name = place.name(&source(salt));
            // Whatever was read is a mixture at worst; a link that turns between two looks leads outside.
            let is_outside =
                |error: &String| error.contains("is a symbolic link to a file outside the include");
            assert!(name.as_ref().map_or_else(is_outside, |name| name.starts_with("k_")), "{name:?}");
        }
    });
    for salt in 0..6 {
        for (folder, name) in [("first", "k_1_1"), ("second", "k_2_2")] {
            turn(folder);
            place.expect(&source(salt), name);
        }
    }
}

#[test]
fn a_directive_that_a_macro_makes_is_an_error() {
    let place = Place::new();
    place.write("one/a.h", "#define V 1\n");
    for hash in ["#", "%:"] {
        let source = place.source(&format!("#define H {hash}\nH include <a.h>"), &["one"]);
        let error = place.name(&source).unwrap_err();
        assert!(error.starts_with("kernel.metal:2:"), "{error}");
    }
}

/// `..` is taken out of a path before it is looked for. Where the disk has another file there, neither is taken.
#[test]
fn a_path_that_leads_elsewhere_by_a_link_is_refused() {
    let place = Place::new();
    let refused = |source: &Source| {
        let error = place.name(source).unwrap_err();
        assert!(error.contains("the directory before `..` is a symbolic link or does not exist"), "{error}");
    };
    place.write("one/deep/a.h", "#include \"../up.h\"\n");
    place.write("one/up.h", "#define V 1\n");
    place.write("one/other/deep/a.h", "#include \"../up.h\"\n");
    let beside = place.source("#include <deep/a.h>", &["one"]);
    place.expect(&beside, "k_1_none");
    // The folder becomes a link: on the disk, `..` is now `other`.
    fs::rename(place.path("one/deep"), place.path("aside")).unwrap();
    symlink(place.path("one/other/deep"), place.path("one/deep")).unwrap();
    refused(&beside);
    place.write("one/other/up.h", "#define V 2\n");
    refused(&beside);
    fs::remove_file(place.path("one/deep")).unwrap();
    fs::rename(place.path("aside"), place.path("one/deep")).unwrap();
    place.expect(&beside, "k_1_none");
    // A folder that is not there, and one that comes.
    let through = place.source("#include <in/../up.h>", &["one"]);
    refused(&through);
    fs::create_dir(place.path("one/in")).unwrap();
    place.expect(&through, "k_1_none");
    fs::remove_dir(place.path("one/in")).unwrap();
    refused(&through);
    // An include folder may be a link, and be named by way of one.
    symlink(place.path("one/other/deep"), place.path("link")).unwrap();
    place.write("one/other/named.h", "#define V 3\n");
    place.expect(&place.source("#include <named.h>", &["link/.."]), "k_3_none");
}

/// A source's text does not decide which files of the machine can be read.
#[test]
fn files_outside_the_folders_are_not_read() {
    let place = Place::new();
    place.write("inside/a.h", "#define V 1\n");
    place.write("secret.h", "the secret\n#define V 2\n");
    place.write("secret.bin", "the secret");
    symlink(place.path("secret.h"), place.path("inside/link.h")).unwrap();
    symlink(place.path("secret.bin"), place.path("inside/link.bin")).unwrap();
    symlink(place.path(""), place.path("inside/up")).unwrap();
    let secret = place.path("secret.h").display().to_string();
    let refused = [
        format!("#include \"{secret}\""),
        format!("#include <{secret}>"),
        "#include <../secret.h>".into(),
        "#include \"../secret.h\"".into(),
        "#include \"../inside/../secret.h\"".into(),
        "#include <link.h>".into(),
        "#include <up/secret.h>".into(),
        "constant char a[] = {\n#embed <../secret.bin>\n};".into(),
        "constant char a[] = {\n#embed <link.bin>\n};".into(),
        format!("constant char a[] = {{\n#embed \"{}\"\n}};", place.path("secret.bin").display()),
        format!("#if __has_include(\"{secret}\")\n#error it is there\n#else\n#error it is not there\n#endif"),
    ];
    for text in &refused {
        let source = place.source(text, &["inside"]);
        for toolchain in [place.toolchain.clone(), Toolchain::find().unwrap()] {
            match CachedProgram::new(&toolchain, &source) {
                Err(Error::Compile(found)) => {
                    let all = format!("{found:?}");
                    assert!(!all.contains("the secret") && !all.contains("it is there"), "{text}: {all}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }
    // Not by the name of a line either.
    let source = place.source(&format!("#line 1 \"{secret}\"\nfloat x = missing;"), &["inside"]);
    let Err(Error::Compile(found)) = CachedProgram::new(&place.toolchain, &source) else {
        panic!("compiled")
    };
    assert_eq!((found[0].file.as_str(), found[0].source_line.as_deref()), (secret.as_str(), None));
    // An option lifts it.
    for (text, name) in [(&refused[5], "k_none"), (&refused[8], "k_none")] {
        let source = place.source(text, &["inside"]).include_outside();
        let found = CachedProgram::new(&place.toolchain, &source);
        let read = match &found {
            Ok(_) => true,
            Err(Error::Compile(found)) => found[0].message.contains("unknown type name 'the'"),
            Err(_) => false,
        };
        assert!(read, "{name}: {found:?}");
    }
    place.write("secret.h", "#define V 2\n");
    for text in &refused[..7] {
        place.expect(&place.source(text, &["inside"]).include_outside(), "k_2_none");
    }
    place.write("secret.h", "#define V 3\n");
    for text in &refused[..7] {
        place.expect(&place.source(text, &["inside"]).include_outside(), "k_3_none");
    }
}

/// Numbers by splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % count as u64) as usize
    }

    fn of<'a, T: ?Sized>(&mut self, all: &[&'a T]) -> &'a T {
        all[self.below(all.len())]
    }
}

const NAMES: [&str; 7] = ["a.h", "b.h", "in/a.h", "in/b.h", "é c.h", "in/deep/a.h", "elinvar_stdlib/a.h"];

fn inclusion(random: &mut Random) -> String {
    let name = random.of(&NAMES);
    let up = ["", "", "", "../", "./", "in/../"];
    let name = format!("{}{name}", random.of(&up));
    match random.below(9) {
        0 | 1 => format!("#include <{name}>\n"),
        2 | 3 => format!("#include \"{name}\"\n"),
        4 => format!("#include_next <{name}>\n"),
        5 => format!("#define N <{name}>\n#include N\n#undef N\n"),
        6 => format!("#if __has_include(\"{name}\")\n#include \"{name}\"\n#endif\n"),
        7 => format!(
            "#define H_ __has_inc\\\nlude\n#if H_(<{name}>)\n#undef W\n#define W has\n#endif\n#undef H_\n"
        ),
        _ => format!("#import \"{name}\"\n"),
    }
}

fn header(random: &mut Random) -> String {
    let mut text = String::from(["", "#pragma once\n"][random.below(2)]);
    text.push_str("#if __INCLUDE_LEVEL__ < 6\n");
    for _ in 0..random.below(3) {
        text.push_str(&inclusion(random));
    }
    text.push_str("#endif\n");
    let (word, value) = (random.of(&["V", "W"]), random.below(5));
    text + &format!("#undef {word}\n#define {word} {value}\n")
}

/// What clang alone makes of the text: the kernel's name. `None` when it is wrong.
fn alone(place: &Place, source: &Source) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("main.metal");
    fs::write(&file, &source.files[0].text).unwrap();
    let mut clang = Command::new(place.toolchain.path());
    clang.args(["-E", "-P", "-nostdinc", "-undef", "-std=c++17", "-x", "c++", "-Wno-everything"]);
    clang.args(source.include_dirs.iter().flat_map(|folder| ["-I".as_ref(), folder.as_os_str()]));
    let output = clang.arg(&file).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let name = text.split("kernel void ").nth(1)?.split('(').next()?;
    output.status.success().then(|| name.to_owned())
}

fn change(place: &Place, random: &mut Random, folders: &[&str]) {
    let file = format!("{}/{}", random.of(folders), random.of(&NAMES));
    let path = place.path(&file);
    match random.below(8) {
        0..4 => {
            let _none = fs::remove_file(&path);
            place.write(&file, &header(random));
        }
        4 | 5 => drop(fs::remove_file(&path)),
        6 => {
            let other = place.path(&format!("{}/{}", random.of(folders), random.of(&NAMES)));
            let _none = fs::remove_file(&path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if other.is_file() {
                symlink(other, &path).unwrap();
            }
        }
        _ => {
            // Two folders trade places.
            let [a, b] = [0, 1].map(|i| place.path(folders[i]));
            fs::create_dir_all(&a).unwrap();
            fs::create_dir_all(&b).unwrap();
            fs::rename(&a, place.path("aside")).unwrap();
            fs::rename(&b, &a).unwrap();
            fs::rename(place.path("aside"), &b).unwrap();
        }
    }
}

/// Random trees of headers under edits, each result compared with that of a toolchain without a cache, and where all files may
/// be included with what clang alone makes of them. Longer:
/// `ELINVAR_FUZZ_INCLUDES=20000 cargo test -p elinvar-msl --test includes random`.
#[test]
fn random_trees_are_never_stale() {
    let steps = std::env::var("ELINVAR_FUZZ_INCLUDES").ok().map_or(40, |steps| steps.parse().unwrap());
    let seed = std::env::var("ELINVAR_FUZZ_SEED").ok().map_or(1, |seed| seed.parse().unwrap());
    let fresh = Toolchain::find().unwrap();
    for round in 0..(steps as u64).div_ceil(40) {
        let random = &mut Random(seed + round);
        let place = Place::new();
        let folders: Vec<&str> = (0..3).map(|i| ODD[(random.below(4) + 4 * i) % ODD.len()]).collect();
        let sources: Vec<Source> = (0..3)
            .map(|_| {
                let text = inclusion(random) + &inclusion(random);
                let source = place.source(&text, &folders[..1 + random.below(3)]);
                if random.below(3) == 0 { source } else { source.include_outside() }
            })
            .collect();
        // All of them are there always: behind one that is not, `..` is refused where clang alone finds nothing.
        for folder in &folders {
            for name in ["in/deep/in", "in/in", "elinvar_stdlib/in"] {
                fs::create_dir_all(place.path(folder).join(name)).unwrap();
            }
        }
        for _ in 0..12 {
            change(&place, random, &folders);
        }
        for step in 0..40 {
            change(&place, random, &folders);
            let source = &sources[random.below(sources.len())];
            let found = place.name(source);
            let told = || format!("seed {} step {step}: {source:?}", seed + round);
            // The same error may be told of another file: without a cache, there is no first look.
            let compiled = name(&fresh, source);
            assert_eq!(found.as_ref().ok(), compiled.as_ref().ok(), "{}, {found:?} {compiled:?}", told());
            if source.include_outside {
                assert_eq!(found.as_ref().ok(), alone(&place, source).as_ref(), "{}, {found:?}", told());
            }
            assert!(found.is_ok() || found.as_ref().is_err_and(|e| !e.is_empty()), "{}", told());
        }
    }
}
