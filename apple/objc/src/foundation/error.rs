//! `NSError`.

use std::ffi::c_void;

use crate::declare::Declaration;
use crate::foundation::{NsDictionary, NsString};
use crate::reference::{Object, Ref};

/// Why something could not be done.
#[derive(Clone)]
pub struct NsError {
    domain: Ref<NsString>,
    code: isize,
    info: Ref<NsDictionary>,
}

crate::object!(NsError, c"NSError");

/// The key of an error's description.
const DESCRIPTION: &str = "NSLocalizedDescription";

crate::string_constants! { NSLocalizedDescriptionKey = "NSLocalizedDescription", NSUnderlyingErrorKey = "NSUnderlyingError" }

impl NsError {
    /// A new error object.
    pub fn new(domain: &str, code: isize, description: &str) -> Ref<Self> {
        Self::with_info(domain, code, description, [])
    }

    /// A new error object that says more.
    pub fn with_info<'a>(
        domain: &str,
        code: isize,
        description: &str,
        more: impl IntoIterator<Item = (&'a str, Object)>,
    ) -> Ref<Self> {
        crate::watch::log(format_args!("{domain} {code}: {description}"));
        let described = (NsString::new(DESCRIPTION), NsString::new(description).into_object());
        let more = more.into_iter().map(|(key, value)| (NsString::new(key), value));
        let info = NsDictionary::new([described].into_iter().chain(more));
        Ref::new(Self { domain: NsString::new(domain), code, info })
    }

    /// Its description.
    pub fn text(&self) -> String {
        let own = self.info.entries().find(|(key, _)| *key == DESCRIPTION);
        let own = own.and_then(|(_, value)| value.downcast::<NsString>());
        own.map_or_else(
            || format!("{} error {}", self.domain.as_str(), self.code),
            |text| text.as_str().to_owned(),
        )
    }
}

fn from_parts(domain: Ref<NsString>, code: isize, info: Option<Ref<NsDictionary>>) -> Option<NsError> {
    Some(NsError { domain, code, info: info.unwrap_or_else(|| NsDictionary::new([])) })
}

pub(super) fn register() {
    register_constants();
    Declaration::<NsError>::new()
        .init("initWithDomain:code:userInfo:", from_parts)
        .class_method("errorWithDomain:code:userInfo:", |domain, code, info| {
            from_parts(domain, code, info).map(Ref::new)
        })
        .method("domain", |this: &Ref<NsError>| this.domain.clone())
        .method("code", |this: &Ref<NsError>| this.code)
        .method("userInfo", |this: &Ref<NsError>| this.info.clone())
        .method("localizedDescription", |this: &Ref<NsError>| NsString::new(&this.text()))
        .method("description", |this: &Ref<NsError>| {
            NsString::new(&format!("{} {}: {}", this.domain.as_str(), this.code, this.text()))
        })
        .method("copyWithZone:", |this: &Ref<NsError>, _: *mut c_void| this.clone())
        .register();
}
