//! `cargo xtask book`: builds the book into `target/book`.

use std::path::Path;

use anyhow::{Context as _, Result};

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .context("the crate is not in a workspace")?;
    let to = root.join("target/book");
    let pages = elinvar_book::build(root, &to)?;
    println!("{} pages: {}", pages.len(), to.join("index.html").display());
    Ok(())
}
