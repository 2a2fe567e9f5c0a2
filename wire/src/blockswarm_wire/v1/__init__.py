"""Protocol version 1: the .proto files and the code generated from them (`make proto`)."""
