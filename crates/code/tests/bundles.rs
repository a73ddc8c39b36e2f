//! Bundles as files and as tables, and the code of a kernel read.

use std::sync::Arc;

use elinvar_code::{Bundle, Declared, Origin, kernel_key};
use elinvar_driver::{Error, PipelineOptions, Signature, Source};

/// A bundle that says of a source that it is unsupported, because of `why`.
fn saying(name: &str, why: &str) -> Bundle {
    let mut bundle = Bundle::default();
    bundle.insert_source(&Source::named(name, "text"), &Err(Error::unsupported(why)));
    bundle
}

fn why(bundle: &Bundle, name: &str) -> Option<String> {
    match bundle.source(&Source::named(name, "text"))? {
        Err(Error::Unsupported(why)) => Some(why),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_file_is_told_by_its_first_bytes_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let [file, other, short, absent] = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
    std::fs::write(&file, saying("k.metal", "this").to_bytes()).unwrap();
    std::fs::write(&other, "kernel void k() {}  // longer than a bundle's name").unwrap();
    std::fs::write(&short, "kernel").unwrap();
    assert_eq!([&file, &other, &short, &absent].map(|path| Bundle::is_at(path)), [true, false, false, false]);

    assert_eq!(Bundle::open(&file).unwrap(), saying("k.metal", "this"));
    match Bundle::open(&other) {
        Err(Error::InvalidArgument(text)) => {
            assert_eq!(text, format!("{}: not an Elinvar bundle (bad magic)", other.display()));
        }
        other => panic!("{other:?}"),
    }
    match Bundle::open(&absent) {
        Err(Error::Environment(text)) => {
            assert!(text.starts_with(&format!("cannot read the bundle {}: ", absent.display())), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn sources_are_listed_by_name_with_their_keys() {
    let mut bundle = saying("b.metal", "this");
    bundle.insert_source(&Source::named("a.metal", ""), &Ok(Declared::default()));
    let key = |name: &str, text: &str| Source::named(name, text).identity();
    let listed: Vec<(&str, [u8; 32])> = bundle.sources().map(|(name, _, key)| (name, key)).collect();
    assert_eq!(listed, [("a.metal", key("a.metal", "")), ("b.metal", key("b.metal", "text"))]);
    assert_eq!(Bundle::default().sources().count(), 0);
}

#[test]
fn a_bundle_takes_what_another_has() {
    let mut all = saying("a.metal", "first");
    assert!(!all.is_empty() && Bundle::default().is_empty());
    all.extend(saying("b.metal", "second"));
    assert_eq!((all.len(), all.sources().count()), (2, 2));
    assert_eq!([why(&all, "a.metal"), why(&all, "b.metal")], [Some("first".into()), Some("second".into())]);
    all.extend(saying("a.metal", "third"));
    assert_eq!((all.len(), why(&all, "a.metal")), (2, Some("third".into())), "the later one holds");
}

#[test]
fn outcomes_of_all_kinds_are_kept_and_a_machine_s_failure_is_not() {
    let (source, options) = (Source::msl("text"), PipelineOptions::default());
    let key = kernel_key("kind", &source, "k", &options);
    let mut bundle = Bundle::default();
    let outcome = |bundle: &Bundle| bundle.get::<u32>(&key).map(|outcome| outcome.map_err(|e| e.to_string()));
    bundle.insert(&key, &Ok(7_u32));
    assert_eq!(outcome(&bundle), Some(Ok(7)));
    bundle.insert(&key, &Err::<(), _>(Error::invalid("no such kernel")));
    assert_eq!(outcome(&bundle), Some(Err("no such kernel".into())));
    bundle.insert(&key, &Err::<(), _>(Error::Environment("no disk".into())));
    assert_eq!(outcome(&bundle), Some(Err("no such kernel".into())), "it says nothing about the kernel");
    // Of what is longer than the type, nothing is taken.
    bundle.insert(&key, &Ok((7_u32, 0_u32)));
    assert_eq!(outcome(&bundle), None);
    assert_eq!(outcome(&Bundle::default()), None);
    for other in [
        kernel_key("other", &source, "k", &options),
        kernel_key("kind", &source, "l", &options),
        kernel_key("kind", &Source::msl("other"), "k", &options),
    ] {
        assert_ne!(other, key);
    }
}

#[test]
fn a_kernel_s_code_is_read_or_the_kernel_is_named() {
    let signature = Signature {
        name: "k".into(),
        args: Vec::new(),
        builtins: Vec::new(),
        file: "k.metal".into(),
        line: 1,
        max_threads_per_threadgroup: None,
        code: None,
        logs: Vec::new(),
    };
    let origin = Origin { signature, source: Arc::new(Source::msl("")) };
    let module = origin.parse("define void @f() {\n  ret void\n}\n").unwrap();
    assert_eq!(module.functions.len(), 1);
    assert_eq!(module.functions[0].name, "f");
    match origin.parse("not a module") {
        Err(Error::Unsupported(text)) => {
            assert!(text.starts_with("kernel `k`: cannot read clang's output: "), "{text}");
        }
        other => panic!("{other:?}"),
    }
}
