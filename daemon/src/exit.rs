//! The exit codes of `plimsoll`, in one place. Scripts and the systemd unit read them; nothing else in the crate writes numbers.

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitCode {
    /// It did what was asked.
    Ok,
    /// The system refused something that no other code names (no thread, no runtime).
    System,
    /// The command line is not understood.
    Usage,
    /// The plan needs more than the machine has within its line.
    DoesNotFit,
    /// Somebody else holds what the plan needs.
    DirtyCard,
    /// No daemon answers.
    NoDaemon,
    /// The model file is damaged or of a kind this build does not know.
    BadModel,
    /// Another process listens at the address.
    AddressInUse,
    /// The configuration is wrong.
    Configuration,
    /// The model file is not where it was looked for.
    ModelMissing,
}

impl ExitCode {
    /// All of them, for the help text.
    const ALL: [Self; 10] = [
        Self::Ok,
        Self::System,
        Self::Usage,
        Self::DoesNotFit,
        Self::DirtyCard,
        Self::NoDaemon,
        Self::BadModel,
        Self::AddressInUse,
        Self::Configuration,
        Self::ModelMissing,
    ];

    /// The number and its meaning.
    const fn row(self) -> (u8, &'static str) {
        match self {
            Self::Ok => (0, "ok"),
            Self::System => (1, "the system refused something else"),
            Self::Usage => (2, "usage"),
            Self::DoesNotFit => (3, "does not fit"),
            Self::DirtyCard => (4, "dirty card"),
            Self::NoDaemon => (5, "no daemon"),
            Self::BadModel => (6, "bad model file"),
            Self::AddressInUse => (7, "address in use"),
            Self::Configuration => (64, "configuration"),
            Self::ModelMissing => (66, "model missing"),
        }
    }

    /// One line that lists the codes.
    pub(crate) fn help() -> String {
        let rows: Vec<String> = Self::ALL.iter().map(|code| format!("{} {}", code.row().0, code.row().1)).collect();
        format!("Exit codes: {}", rows.join(" · "))
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.row().0)
    }
}

#[cfg(test)]
mod tests {
    use super::ExitCode;

    #[test]
    fn the_help_line_names_every_code_once() {
        assert_eq!(
            ExitCode::help(),
            "Exit codes: 0 ok · 1 the system refused something else · 2 usage · 3 does not fit · 4 dirty card · 5 no daemon · \
             6 bad model file · 7 address in use · 64 configuration · 66 model missing"
        );
    }
}
