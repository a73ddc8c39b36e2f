//! Links of Markdown pages: extraction, checking, and rewriting for the book.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A link or image of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The destination as written.
    pub target: String,
    /// The link text; empty for an HTML attribute.
    pub text: String,
    /// The line that it begins on, from 1.
    pub line: usize,
    /// Its byte range in the page's text.
    pub range: Range<usize>,
}

impl Link {
    /// Splits the destination into file and heading; `None` for a URL.
    fn parts(&self) -> Option<(&str, Option<&str>)> {
        let elsewhere = self.target.contains("://") || self.target.starts_with("mailto:");
        let parts = self.target.split_once('#').map_or((self.target.as_str(), None), |(f, h)| (f, Some(h)));
        (!elsewhere).then_some(parts)
    }
}

fn parser(text: &str) -> pulldown_cmark::OffsetIter<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH).into_offset_iter()
}

/// Returns the links and images of a page, in document order.
pub fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (event, range) in parser(text) {
        let line = text[..range.start].matches('\n').count() + 1;
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                let shown = text[range.clone()].split_once('[').map_or("", |(_, rest)| rest);
                let shown = shown.rsplit_once("](").map_or(shown, |(shown, _)| shown);
                found.push(Link { target: dest_url.to_string(), text: shown.to_owned(), line, range });
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                for attribute in ["src=\"", "srcset=\"", "href=\""] {
                    for rest in html.split(attribute).skip(1) {
                        let target = rest.split('"').next().unwrap_or_default().to_owned();
                        found.push(Link { target, text: String::new(), line, range: range.clone() });
                    }
                }
            }
            _ => {}
        }
    }
    found
}

/// The anchors of a page's headings, as GitHub and mdBook generate them.
fn anchors(text: &str) -> Vec<String> {
    let (mut heading, mut seen, mut found) = (None::<String>, HashMap::<String, usize>::new(), Vec::new());
    for (event, _) in parser(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            Event::End(TagEnd::Heading(_)) => {
                let kept = |c: char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
                let text = heading.take().unwrap_or_default().trim().to_lowercase();
                let name: String = text.chars().filter(|c| kept(*c)).collect::<String>().replace(' ', "-");
                let count = seen.entry(name.clone()).or_default();
                found.push(if *count == 0 { name.clone() } else { format!("{name}-{count}") });
                *count += 1;
            }
            _ => {}
        }
    }
    found
}

/// `folder/target` with `.` and `..` resolved lexically.
fn joined(folder: &Path, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in folder.join(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

/// Returns the broken links of a page, each as `page:line: target: reason`.
///
/// # Errors
/// If a page cannot be read.
pub fn broken(page: &Path, root: &Path) -> Result<Vec<String>> {
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()));
    let text = read(page)?;
    let folder = page.parent().unwrap_or(root);
    let mut wrong = Vec::new();
    for link in links(&text) {
        let Some((file, heading)) = link.parts() else { continue };
        let target = if file.is_empty() { page.to_path_buf() } else { joined(folder, file) };
        let reason = if !target.starts_with(root) {
            Some("is outside of the repository")
        } else if !target.exists() {
            Some("does not exist")
        } else if let Some(heading) = heading {
            let is_page = target.extension().is_some_and(|end| end == "md");
            let there = is_page && anchors(&read(&target)?).iter().any(|name| name == heading);
            (!there).then_some("has no such heading")
        } else {
            None
        };
        if let Some(reason) = reason {
            let name = page.strip_prefix(root).unwrap_or(page).display();
            wrong.push(format!("{name}:{}: {}: {reason}", link.line, link.target));
        }
    }
    Ok(wrong)
}

/// Rewrites the links of a page that leave `source`: to `repository` if there is one, else to plain text.
pub(crate) fn within(
    text: &str,
    folder: &Path,
    root: &Path,
    source: &Path,
    repository: Option<&str>,
) -> String {
    let mut made = text.to_owned();
    for link in links(text).into_iter().rev() {
        let Some((file, heading)) = link.parts().filter(|(file, _)| !file.is_empty()) else { continue };
        let target = joined(folder, file);
        if link.text.is_empty() || target.starts_with(source) {
            continue;
        }
        let name = target.strip_prefix(root).unwrap_or(&target).display().to_string().replace('\\', "/");
        let heading = heading.map(|heading| format!("#{heading}")).unwrap_or_default();
        let shown = &link.text;
        made.replace_range(
            link.range,
            &match repository {
                Some(url) => format!("[{shown}]({}/blob/HEAD/{name}{heading})", url.trim_end_matches('/')),
                None if shown.contains(&name) => shown.clone(),
                None => format!("{shown} (`{name}`)"),
            },
        );
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_where_markdown_has_them() {
        let text =
            "# A\n\nsee [one](a.md#b) and\n[`two`](../c.rs), not `[code](x.md)`\n\n| ![p](p.svg) |\n|---|\n";
        let found: Vec<_> = links(text).into_iter().map(|link| (link.target, link.text, link.line)).collect();
        let expected = [("a.md#b", "one", 3), ("../c.rs", "`two`", 4), ("p.svg", "p", 6)];
        assert_eq!(found, expected.map(|(target, text, line)| (target.to_owned(), text.to_owned(), line)));
        assert!(links("```text\n[no](x.md)\n```\n").is_empty());
        assert_eq!(links("<img src=\"a.svg\" alt=\"b\">\n")[0].target, "a.svg");
    }

    #[test]
    fn headings_are_named_as_github_names_them() {
        let text = "# NVIDIA H200\n## What's `new`, and why\n## Twice\n## Twice\n";
        assert_eq!(anchors(text), ["nvidia-h200", "whats-new-and-why", "twice", "twice-1"]);
    }

    #[test]
    fn a_link_to_nothing_is_told_with_its_line() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).unwrap();
        write("b.md", "# There\n");
        write(
            "a.md",
            "# A\n[1](b.md) [2](b.md#there) [3](https://x.y/z)\n\n[4](c.md) [5](b.md#gone) [6](../out) [7](#a) [8](#b)\n",
        );
        let wrong = broken(&root.path().join("a.md"), root.path()).unwrap();
        assert_eq!(
            wrong,
            [
                "a.md:4: c.md: does not exist",
                "a.md:4: b.md#gone: has no such heading",
                "a.md:4: ../out: is outside of the repository",
                "a.md:4: #b: has no such heading",
            ]
        );
    }

    #[test]
    fn what_is_outside_of_the_book_is_named_or_linked() {
        let text = "[p](b.md), [the code](../src/x.rs#L3), [`src/x.rs`](../src/x.rs)";
        let (root, source) = (Path::new("/r"), Path::new("/r/docs"));
        let made = |repository| within(text, source, root, source, repository);
        assert_eq!(made(None), "[p](b.md), the code (`src/x.rs`), `src/x.rs`");
        assert_eq!(
            made(Some("https://h/o/n/")),
            "[p](b.md), [the code](https://h/o/n/blob/HEAD/src/x.rs#L3), [`src/x.rs`](https://h/o/n/blob/HEAD/src/x.rs)"
        );
    }
}
