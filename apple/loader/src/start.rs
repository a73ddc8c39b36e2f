//! Loading and start of a program: mapping, binding, initializers, entry point.

use std::ffi::{CString, OsString, c_char, c_int};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context, Result};

use crate::image::Image;
use crate::names::Names;
use crate::{fixups, system, thread_locals};

/// Arguments of a program and its initializers.
type Begin =
    unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char, *const *const c_char) -> c_int;

/// Runs the program. Returns an error if it cannot be started; otherwise the process ends with it.
#[allow(unsafe_code)] // calls the program
pub fn run(library: &Path, program: &Path, arguments: Vec<OsString>) -> Result<()> {
    let image = Image::load(program)?;
    fixups::rebase(&image)?;
    let mut names = Names::open(library)?;
    for table in 1..4 {
        fixups::bind(&image, table, &mut |name| names.find(name))?;
    }
    let moved = |address: u64| address.wrapping_add(image.slide);
    thread_locals::set(moved(image.thread_locals.start)..moved(image.thread_locals.end));

    let words = std::iter::once(program.as_os_str().to_owned()).chain(arguments);
    let words =
        pointers(words.map(|word| CString::new(word.as_bytes()).context("an argument with a zero byte")))?;
    let variables = std::env::vars_os().map(|(name, value)| {
        let text = [name.as_bytes(), b"=", value.as_bytes()].concat();
        CString::new(text).context("a variable with a zero byte")
    });
    let variables = pointers(variables)?;
    let facts = pointers(
        [[b"executable_path=", program.as_os_str().as_bytes()].concat()]
            .map(|fact| CString::new(fact).context("a path with a zero byte"))
            .into_iter(),
    )?;
    let count = c_int::try_from(words.len() - 1)?;
    let (words, variables, facts) = (words.leak(), variables.leak(), facts.leak());
    system::set_arguments(count, words.as_ptr());
    let begin = |address: u64| {
        // SAFETY: the program's own tables say that a function of this type is there, and its pages are mapped.
        unsafe {
            let begin: Begin = std::mem::transmute(address as usize);
            begin(count, words.as_ptr(), variables.as_ptr(), facts.as_ptr())
        }
    };
    for at in image.initializers.clone().step_by(8) {
        // SAFETY: the range is of the program's table of initializers, which is mapped and has been rebased.
        begin(unsafe { (moved(at) as *const u64).read_unaligned() });
    }
    let status = begin(image.entry());
    std::process::exit(status);
}

/// A null-terminated array of pointers to permanent strings.
fn pointers(texts: impl Iterator<Item = Result<CString>>) -> Result<Vec<*const c_char>> {
    let mut pointers = Vec::new();
    for text in texts {
        pointers.push(text?.into_raw().cast_const());
    }
    pointers.push(std::ptr::null());
    Ok(pointers)
}
