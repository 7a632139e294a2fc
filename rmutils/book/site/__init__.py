"""The book's own machinery: what its pages show beside the chapters, and the other forms it takes.

Lists, records and search (`pages`), runs with other parameters (`gallery`), worksheets
(`classroom`) and `slides`, the page on a model of one's own (`model_report`), the model that
answers in the reader's browser (`playground`), print (`pdf`) and the `archive`.
"""
