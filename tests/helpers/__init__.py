"""Problems, programs and checks that several tests use."""
