//! `NSURL`: paths of files only.

use std::ffi::c_void;
use std::path::{Path, PathBuf};

use crate::declare::Declaration;
use crate::foundation::NsString;
use crate::reference::Ref;

/// A file's address.
#[derive(Clone)]
pub struct NsUrl(PathBuf);

crate::object!(NsUrl, c"NSURL");

impl NsUrl {
    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Of a file.
    pub fn of_path(path: Ref<NsString>) -> Self {
        Self(std::path::absolute(path.as_str()).unwrap_or_else(|_| path.as_str().into()))
    }

    fn of_text(text: Ref<NsString>) -> Option<Self> {
        text.as_str().strip_prefix("file://").map(|path| Self(path.into()))
    }

    fn text(&self) -> Ref<NsString> {
        NsString::new(&format!("file://{}", self.0.display()))
    }
}

pub(super) fn register() {
    Declaration::<NsUrl>::new()
        .init("initFileURLWithPath:", |path: Ref<NsString>| Some(NsUrl::of_path(path)))
        .init("initFileURLWithPath:isDirectory:", |path: Ref<NsString>, _folder: bool| {
            Some(NsUrl::of_path(path))
        })
        .init("initWithString:", NsUrl::of_text)
        .class_method("fileURLWithPath:", |path: Ref<NsString>| Ref::new(NsUrl::of_path(path)))
        .class_method("fileURLWithPath:isDirectory:", |path: Ref<NsString>, _folder: bool| {
            Ref::new(NsUrl::of_path(path))
        })
        .class_method("URLWithString:", |text: Ref<NsString>| NsUrl::of_text(text).map(Ref::new))
        .method("path", |this: &Ref<NsUrl>| NsString::new(&this.0.display().to_string()))
        .method("absoluteString", |this: &Ref<NsUrl>| this.text())
        .method("isFileURL", |_: &Ref<NsUrl>| true)
        .method("description", |this: &Ref<NsUrl>| this.text())
        .method("copyWithZone:", |this: &Ref<NsUrl>, _: *mut c_void| this.clone())
        .register();
}
