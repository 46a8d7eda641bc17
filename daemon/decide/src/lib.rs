//! Pure decisions: ledger, plan, lifecycle, admission.
