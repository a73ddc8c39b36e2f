//! The book builds, contains every page and a search index; links are valid; examples are covered by tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use elinvar_book::{broken, build, links};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap()
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// File names of the pages in docs/.
fn pages() -> BTreeSet<PathBuf> {
    let files = std::fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let pages = files.map(PathBuf::from).filter(|name| name.extension().is_some_and(|end| end == "md"));
    pages.filter(|name| name != Path::new("SUMMARY.md")).collect()
}

#[test]
fn the_book_has_every_page_and_can_be_searched() {
    let folder = tempfile::tempdir().unwrap();
    let built = build(root(), folder.path()).unwrap();
    assert_eq!(
        built.iter().cloned().collect::<BTreeSet<_>>(),
        pages(),
        "docs/SUMMARY.md lists all of docs/, once"
    );
    assert_eq!(built.len(), pages().len());
    let names = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let index: Vec<String> = names.filter(|name| name.starts_with("searchindex")).collect();
    let [index] = &index[..] else { panic!("one search index, not {index:?}") };
    let index = std::fs::read_to_string(folder.path().join(index)).unwrap();
    for page in built {
        let html = page.with_extension("html");
        let text = std::fs::read_to_string(folder.path().join(&html)).unwrap();
        assert!(!text.contains("](../"), "{}: a link is left as text", page.display());
        // Links between pages, after rendering.
        for rest in text.split("href=\"").skip(1) {
            let target = rest.split(['"', '#']).next().unwrap();
            let elsewhere = target.is_empty() || target.contains("://");
            assert!(elsewhere || folder.path().join(target).exists(), "{}: {target}", html.display());
        }
        assert!(index.contains(&*html.to_string_lossy()), "{} is not in the search index", page.display());
    }
}

#[test]
fn links_lead_somewhere() {
    let mut all: Vec<PathBuf> = pages().into_iter().map(|page| Path::new("docs").join(page)).collect();
    all.extend(["docs/SUMMARY.md", "README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(PathBuf::from));
    let wrong: Vec<String> =
        all.iter().flat_map(|page| broken(&root().join(page), root()).unwrap()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(all.iter().map(|page| links(&read(page)).len()).sum::<usize>() > 100, "there are links");
}

/// Rust code of the pages is covered by doc tests of the crates `elinvar` or `elinvar-telemetry`.
#[test]
fn examples_in_rust_are_doc_tests() {
    let tested = ["crates/runtime/src/lib.rs", "crates/telemetry/src/lib.rs"].map(read).concat();
    for page in pages() {
        let name = format!("docs/{}", page.display());
        if read(&name).lines().any(|line| line.starts_with("```rust")) {
            assert!(
                tested.contains(&format!("/{name}\")]")),
                "{name} is neither in `pages` of crates/runtime/src/lib.rs nor in crates/telemetry/src/lib.rs"
            );
        }
    }
    assert!(tested.contains("/README.md\")]"));
}

/// The table of faults in errors-and-recovery.md names the test of each.
#[test]
fn the_test_of_each_fault_exists() {
    let page = read("docs/errors-and-recovery.md");
    let (_, table) = page.split_once("## What is tested").unwrap();
    let (mut sources, mut folders) = (String::new(), vec![root().join("crates"), root().join("verify")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                sources.push_str(&std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let cells = table.lines().filter_map(|line| line.rsplit_once(" | ").map(|(_, cell)| cell));
    let names = cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .filter(|name| name.contains(' ') || name.contains("::"));
    let names: Vec<&str> = names.filter_map(|name| name.rsplit([' ', ':']).next()).collect();
    assert!(names.len() > 30, "{names:?}");
    // Tests of custom harnesses are listed in a table of names and functions.
    let exists =
        |name: &str| sources.contains(&format!("fn {name}(")) || sources.contains(&format!("(\"{name}\", "));
    let missing: Vec<_> = names.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "no such tests: {missing:?}");
}
