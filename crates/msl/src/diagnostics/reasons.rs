//! Reasons for errors that clang reports in words of C++: what of Metal is not supported.

/// A message of clang's, with the reason if the error is one of Elinvar's limits.
pub(crate) fn with_reason(message: String) -> String {
    if let Some(name) = message.strip_prefix('\'').and_then(|rest| rest.strip_suffix("' file not found")) {
        return match of_header(name) {
            Some(reason) => format!("`{name}` is not supported: {reason}"),
            None => message,
        };
    }
    let undefined = message
        .strip_prefix("function '")
        .and_then(|rest| rest.strip_suffix("' has internal linkage but is not defined"));
    match undefined {
        Some(name) => {
            format!("function `{name}` is declared, and neither the source nor its libraries define it")
        }
        None => message,
    }
}

/// Why a header of Metal's is not there.
fn of_header(name: &str) -> Option<&'static str> {
    match name.split('/').next()? {
        "MetalPerformancePrimitives" => Some(
            "of Metal Performance Primitives there are products of matrices, in MetalPerformancePrimitives.h",
        ),
        "MetalPerformanceShaders" | "MetalPerformanceShadersGraph" => {
            Some("Metal Performance Shaders are functions of the host; Elinvar calls them as primitives")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        for (message, expected) in [
            (
                "'MetalPerformancePrimitives/MPPTensorOpsConvolution2d.h' file not found",
                "`MetalPerformancePrimitives/MPPTensorOpsConvolution2d.h` is not supported: of Metal Performance Primitives",
            ),
            ("'metal_tensors.h' file not found", "'metal_tensors.h' file not found"),
            (
                "function 'f<int>' has internal linkage but is not defined",
                "function `f<int>` is declared, and neither the source nor its libraries define it",
            ),
            ("use of undeclared identifier 'f'", "use of undeclared identifier 'f'"),
        ] {
            let found = with_reason(message.to_owned());
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
