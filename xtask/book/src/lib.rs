//! Builds the book from `docs/` with mdBook as a library, and checks the links of the book and of the repository's other pages.
//!
//! Links from a page to files outside `docs/` are valid in a repository viewer, but not in the book. They are rewritten to links
//! to the repository if `book.toml` sets `git-repository-url`, and to the file's name otherwise.
//!
//! Examples are tested elsewhere: Rust code by doc tests of the crate `elinvar`, command-line sessions by tests of `elinvar-cli`.
#![forbid(unsafe_code)]

mod links;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use mdbook_driver::MDBook;
use mdbook_driver::book::BookItem;

pub use links::{Link, broken, links};

/// Builds the book of the repository at `root` into the folder `to`. Returns the paths of its pages, relative to `docs/`.
///
/// # Errors
/// If a page of `SUMMARY.md` does not exist or cannot be read, `book.toml` is invalid, or `to` cannot be written.
pub fn build(root: &Path, to: &Path) -> Result<Vec<PathBuf>> {
    let mut book = MDBook::load(root).context("loading the book")?;
    book.config.build.build_dir = to.to_path_buf();
    let repository: Option<String> =
        book.config.get("output.html.git-repository-url").context("book.toml")?;
    let source = book.source_dir();
    let mut pages = Vec::new();
    book.book.for_each_mut(|item| {
        if let BookItem::Chapter(chapter) = item
            && let Some(path) = &chapter.path
        {
            let folder = source.join(path).parent().map(Path::to_path_buf).unwrap_or_default();
            chapter.content = links::within(&chapter.content, &folder, root, &source, repository.as_deref());
            pages.push(path.clone());
        }
    });
    book.build().context("building the book")?;
    Ok(pages)
}
