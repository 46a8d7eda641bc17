//! The exit codes of `plimsoll-worker`, in one place. They are the daemon's codes; the worker uses some of them.

/// How the process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitCode {
    /// It did what was asked, or ended on `Stop`, SIGTERM or SIGINT.
    Ok,
    /// The system refused something that no other code names.
    System,
    /// The command line is not understood.
    Usage,
    /// Memory could not be had.
    DoesNotFit,
    /// The daemon's end of the socket is closed: there is nobody to work for.
    NoDaemon,
    /// The model file is damaged or of a kind this build does not know.
    BadModel,
    /// A knob is impossible for this model.
    Configuration,
    /// The model file is not where it was looked for.
    ModelMissing,
}

impl ExitCode {
    /// The number that the system sees.
    pub const fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::System => 1,
            Self::Usage => 2,
            Self::DoesNotFit => 3,
            Self::NoDaemon => 5,
            Self::BadModel => 6,
            Self::Configuration => 64,
            Self::ModelMissing => 66,
        }
    }
}

impl From<ExitCode> for std::process::ExitCode {
    fn from(code: ExitCode) -> Self {
        Self::from(code.number())
    }
}
