//! Builds the book from `docs/` with mdBook as a library, and checks what the book and the repository's other pages refer to.
//!
//! A page's links to files outside `docs/` work where the repository is shown, and would lead nowhere in the book: there they
//! become the file's name, or links to the repository where `book.toml` says `git-repository-url`.
//!
//! What this crate does not do: run the pages' examples. Those of Rust are doc tests of the crate `elinvar`, those of the command
//! line are tests of `elinvar-cli`.
#![forbid(unsafe_code)]

mod links;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use mdbook_driver::MDBook;
use mdbook_driver::book::BookItem;

pub use links::{Link, broken, links};

/// Build the book of the repository at `root` into `to`; gives the names of its pages.
///
/// # Errors
/// A page that is missing or cannot be read, a `book.toml` that is wrong, a folder that cannot be written.
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
