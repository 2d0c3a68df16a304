"""Operations measured on this machine, for validation and calibration."""
